"""Shells: the roles of a hosted partition: leader, follower, offline."""
