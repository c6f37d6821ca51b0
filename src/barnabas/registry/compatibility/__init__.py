"""Machine: checks a new version of a schema against the subject's compatibility level."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.registry.formats import Parsed
from barnabas.registry.values import Compatibility, Incompatibility


def check(level: Compatibility, new: Parsed, olds: Sequence[Parsed]) -> list[tuple[int, Incompatibility]]:
    """The violations of the level: (index of the old version, reason). `olds` are sorted from old to new.

    Without TRANSITIVE, only the newest of `olds` is compared. Schemas of different types are never compatible.
    """
    problems: list[tuple[int, Incompatibility]] = []
    if level is Compatibility.NONE or not olds:
        return problems
    first = 0 if level.transitive else len(olds) - 1
    for index in reversed(range(first, len(olds))):
        old = olds[index]
        if type(old) is not type(new):
            message = "the schema has another type than the previous version; use another subject, or level NONE"
            problems.append((index, Incompatibility("SCHEMA_TYPE_CHANGED", "/", message)))
            continue
        found: list[Incompatibility] = []
        if level.backward:
            found += new.read_problems(old)
        if level.forward:
            found += [problem for problem in old.read_problems(new) if problem not in found]
        problems += [(index, problem) for problem in found]
    return problems
