"""The fetch path: fetch sessions, the reads of consumers and followers, and the wait for `min_bytes`."""
