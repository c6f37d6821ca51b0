"""Principals today; ACLs, SCRAM, SASL mechanisms and quotas have their place here. Pure."""
