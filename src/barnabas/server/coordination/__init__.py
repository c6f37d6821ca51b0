"""The coordinators: groups, offsets, transactions. State is a replay of a partition's log; see README.md."""
