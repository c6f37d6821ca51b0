"""The commands that watch a cluster: `top`, `clients`, and the sentences of `--why`."""
