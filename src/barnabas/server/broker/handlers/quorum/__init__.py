"""One file per API of the metadata quorum (KIP-595, KIP-630, KIP-853), on the controllers' listener."""
