"""Shells: the calls of the group coordinator, one module for each subject: members, offsets, administration."""
