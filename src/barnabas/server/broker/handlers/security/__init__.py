"""Shells: the APIs of authentication and of the users' credentials, one file each."""
