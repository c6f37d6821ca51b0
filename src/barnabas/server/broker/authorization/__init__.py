"""Authorization of requests: the table of what each API needs, its enforcement, and the authorizers. See README.md."""
