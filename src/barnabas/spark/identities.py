"""Value: what a position belongs to, and whether it still is the same thing.

A position is a number in something that has a name: an offset in the topic `orders`, an LSN in a server's log, a key in
a table, a micro-batch in a table of a lake. The name can come to mean another thing: the topic was deleted and created
again, the server was restored, the table was replaced. Therefore a position is stored with *marks*, which nothing else
of that name has:

    topic                    id
    PostgreSQL's log         system, timeline
    MySQL's and MariaDB's    server
    a table of a database    system, timeline, oid, file (or what the database has instead)
    Delta, Iceberg           table

A mark that was not stored, because an earlier release wrote the position or the source has none, is adopted when it is
first seen. From then on, a position that belongs to something else is an error that names both.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

Marks = Mapping[str, str]
"""The marks of one thing, by their names. A mark that is not known is missing."""


class Belonging(Enum):
    """How a stored position's marks compare with those of the thing that has its name now."""

    SAME = "same"
    ADOPTED = "adopted"
    """The position had not all of the marks yet."""
    REPLACED = "replaced"
    """At least one mark is another one."""


def belonging(stored: Marks, found: Marks) -> Belonging:
    """Compare marks. A mark that only one side has is no difference."""
    if any(stored[name] != mark for name, mark in found.items() if name in stored):
        return Belonging.REPLACED
    return Belonging.SAME if found.keys() <= stored.keys() else Belonging.ADOPTED


def adopt(stored: Marks, found: Marks) -> dict[str, str]:
    """The marks of a position that goes on: those that it had, and the others as they are now."""
    return {**found, **stored}


def replaced(what: str, stored: Marks, found: Marks) -> str:
    """What is wrong with a position that belongs to something else, which names both. `what` is the thing, such as
    "the topic orders"."""
    differing = [name for name in stored if name in found and stored[name] != found[name]]
    was = ", ".join(f"{name} {stored[name]}" for name in differing)
    now = ", ".join(f"{name} {found[name]}" for name in differing)
    return f"{what} was replaced: the position belongs to the one with {was}, and there is the one with {now} now"
