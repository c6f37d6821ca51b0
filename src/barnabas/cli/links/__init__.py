"""The commands of `barnabas links`."""
