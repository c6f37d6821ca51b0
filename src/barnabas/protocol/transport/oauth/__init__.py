"""OAUTHBEARER over the network: fetching tokens and keys, never on the event loop."""
