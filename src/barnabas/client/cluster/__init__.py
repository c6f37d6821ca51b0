"""How a request finds its broker."""
