"""Shells: the APIs of transactions, one file each; InitProducerId and Produce are in `handlers/data`."""
