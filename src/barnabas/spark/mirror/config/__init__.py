"""The properties file of MirrorMaker: its keys, and what they say about each pair of clusters."""
