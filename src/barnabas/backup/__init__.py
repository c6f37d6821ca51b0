"""Backups of a cluster in a directory or an object store: taking, restoring and verifying them."""
