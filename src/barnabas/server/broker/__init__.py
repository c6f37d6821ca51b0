"""Serves the requests of clients, brokers and controllers. The package opens no sockets and no files."""
