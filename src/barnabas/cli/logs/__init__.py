"""The commands of `barnabas logs`."""
