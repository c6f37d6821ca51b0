"""Shells: Barnabas' own APIs (keys from 10000 on): explanations, and maintenance on request, one file each."""
