"""How records are consumed, alone or in a group."""
