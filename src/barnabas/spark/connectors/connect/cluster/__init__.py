"""Machine: a cluster of Connect workers: the connectors, which worker runs each, and what the worker has to do."""
