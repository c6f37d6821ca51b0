"""The commands `backup`, `restore` and `verify`."""
