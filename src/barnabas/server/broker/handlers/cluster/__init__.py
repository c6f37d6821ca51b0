"""Shells: the APIs that describe topics, brokers and the cluster, one file each."""
