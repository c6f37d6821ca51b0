"""Client quotas: which limit holds for a client, and for how long a client that exceeds it must wait. Pure."""
