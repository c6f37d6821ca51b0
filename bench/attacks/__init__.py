"""Attacks of one client on a broker, for `python -m bench.bystander`. To add one, write a generator function in a module
of this package, decorate it with `@attack(...)`, and list the module in `bench/bystander.py`."""
