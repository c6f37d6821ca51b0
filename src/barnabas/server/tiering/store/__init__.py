"""Object stores: the port, the names of objects, and the stores themselves."""
