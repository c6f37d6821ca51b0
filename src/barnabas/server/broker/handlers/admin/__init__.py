"""Shells: the APIs of administration, most of which a broker forwards to the controller."""
