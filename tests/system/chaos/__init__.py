"""Brokers that are killed, starved and lied to."""
