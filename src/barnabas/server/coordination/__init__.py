"""The coordinators of groups and their offsets, of transactions, and of the state of share partitions. The state of a
coordinator is the result of replaying the log of its partition, as README.md explains."""
