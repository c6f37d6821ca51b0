"""Machines of group membership: no I/O, no clock; the coordinator shell feeds them answers and does what they say."""
