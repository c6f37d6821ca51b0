"""Object stores: the port, its exceptions, and the stores of clouds."""
