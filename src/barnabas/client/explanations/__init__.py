"""Codec: what brokers report about partitions and groups, as sentences, with the words for times and sizes in them."""
