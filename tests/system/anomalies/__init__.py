"""Histories of concurrent clients during faults of the broker, checked for anomalies; brokers with planted bugs."""
