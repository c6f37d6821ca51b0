"""What only controllers serve, on their own listener; see `broker.controller_apis`."""
