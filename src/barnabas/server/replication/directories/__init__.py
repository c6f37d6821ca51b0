"""In which data directory a replica lies, and how it moves to another (KIP-113, KIP-858)."""
