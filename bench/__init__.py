"""Benchmarks. `make bench` runs the broker ones; each other file says at its top what it measures."""
