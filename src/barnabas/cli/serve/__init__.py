"""The commands that run a server: `serve`, `registry` and `console`."""
