"""APIs about consumer groups and their offsets."""
