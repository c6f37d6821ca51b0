"""The commands of `barnabas cluster`."""
