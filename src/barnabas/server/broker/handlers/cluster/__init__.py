"""Shells: the APIs of topics, configs, brokers and the cluster, one file each."""
