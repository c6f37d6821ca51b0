"""The commands that write and read records: `produce`, `consume` and `schemas`."""
