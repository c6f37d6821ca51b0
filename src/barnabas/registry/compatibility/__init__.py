"""Machine: whether a new version of a schema keeps what the subject's compatibility level promises. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.registry.formats import Parsed
from barnabas.registry.values import Compatibility, Incompatibility


def check(level: Compatibility, new: Parsed, olds: Sequence[Parsed]) -> list[tuple[int, Incompatibility]]:
    """What breaks the level: (index of the old version, reason). `olds` are oldest first.

    Without TRANSITIVE only the newest of `olds` counts. Schemas of another type are never compatible.
    """
    problems: list[tuple[int, Incompatibility]] = []
    if level is Compatibility.NONE or not olds:
        return problems
    first = 0 if level.transitive else len(olds) - 1
    for index in reversed(range(first, len(olds))):
        old = olds[index]
        if type(old) is not type(new):
            message = "the schema is of another type than the version before; use another subject, or level NONE"
            problems.append((index, Incompatibility("SCHEMA_TYPE_CHANGED", "/", message)))
            continue
        found: list[Incompatibility] = []
        if level.backward:
            found += new.read_problems(old)
        if level.forward:
            found += [problem for problem in old.read_problems(new) if problem not in found]
        problems += [(index, problem) for problem in found]
    return problems
