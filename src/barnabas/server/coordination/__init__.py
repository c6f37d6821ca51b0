"""The coordinators: groups, offsets, transactions. The state is the result of replaying a partition's log; see
README.md."""
