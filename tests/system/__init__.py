"""Tests with real processes: brokers, clients, Spark."""
