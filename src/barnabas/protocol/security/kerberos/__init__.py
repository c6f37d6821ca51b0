"""Machines: the names of Kerberos principals, and the exchange of the SASL mechanism GSSAPI."""
