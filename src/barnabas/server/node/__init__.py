"""The composition root: configuration, lifecycle, and adapters that implement ports of the packages below."""
