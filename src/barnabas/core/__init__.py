"""Types and ports that all packages share. Imports only the standard library and msgspec."""
