"""Translates the messages of the metadata quorum between the wire format and the values of `server/raft`."""
