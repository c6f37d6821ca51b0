"""The commands of groups and transactions."""
