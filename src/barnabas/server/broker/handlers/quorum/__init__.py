"""Shells: the APIs of the metadata quorum on the controllers' listener (KIP-595, KIP-630, KIP-853), one file each."""
