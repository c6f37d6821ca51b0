"""Machines: leader, in-sync replicas, watermarks. Values in, values out; no clock, no disk."""
