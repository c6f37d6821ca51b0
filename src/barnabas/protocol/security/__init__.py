"""Principals, operations and SASL exchanges, as values and machines without I/O, clock or randomness."""
