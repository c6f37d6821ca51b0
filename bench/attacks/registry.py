"""Table: the attacks that `python -m bench.bystander` knows, by name."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final

from barnabas.protocol.wire.apis import ApiKey

PAGES: Final = "BARNABAS_BENCH_PAGES"
"""The environment variable with the port of the broker's page of metrics."""

Steps = Generator[None, None, str]
Run = Callable[[str], Steps]


@dataclass(frozen=True)
class Attack:
    """One attack. `run(address)` is a generator: everything before its only `yield` prepares the attack and is not
    counted; everything after it is the attack; the string that it returns is printed in the table."""

    name: str
    what: str
    """One line for the table: what the client sends."""
    run: Run
    settings: tuple[str, ...] = ()
    """Settings of the broker, as `name=value`."""
    api: ApiKey | None = None
    """The API whose longest step the table prints; None: the longest of all."""
    listeners: bool = False
    """Whether the broker has the listeners with TLS and SASL of `edges.py`."""


ATTACKS: dict[str, Attack] = {}


def attack(name: str, what: str, *settings: str, api: ApiKey | None = None) -> Callable[[Run], Run]:
    """Register the decorated generator function as an attack."""

    def add(run: Run) -> Run:
        register(Attack(name, what, run, settings, api))
        return run

    return add


def register(attack: Attack) -> None:
    """Add an attack to the table."""
    assert attack.name not in ATTACKS, f"two attacks are called {attack.name}"
    ATTACKS[attack.name] = attack
