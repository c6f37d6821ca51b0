"""Whole processes against each other: brokers, clients, Spark."""
