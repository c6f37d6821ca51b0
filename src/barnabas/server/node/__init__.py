"""The composition root: configuration, lifecycle, and the adapters that fill the ports of the rooms below."""
