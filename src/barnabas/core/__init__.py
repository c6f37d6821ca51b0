"""Nouns and ports that every room shares. Standard library only."""
