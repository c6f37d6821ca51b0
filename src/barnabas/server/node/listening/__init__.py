"""The listeners of a broker for its clients, and their changes while the broker runs. See README.md of the node."""
