"""OAUTHBEARER without I/O: messages, tokens, their validation, and what a client does to get one."""
