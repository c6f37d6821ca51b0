"""Attacks of one client on a broker, for `python -m bench.bystander`.

To add an attack, write a generator function in a module of this package, decorate it with `@attack(...)`, and name the
module in `MODULES` of `bench/bystander.py`.
"""
