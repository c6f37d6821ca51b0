"""Foreign clients and tools against our broker and our files (see `make interop`)."""
