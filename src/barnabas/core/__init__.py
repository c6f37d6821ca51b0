"""Types and ports that all packages share. This package imports only the standard library and msgspec."""
