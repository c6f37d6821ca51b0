"""The four rings of tests: golden, property, simulation, outside (see docs/TESTING.md)."""
