"""Shell: resolves regular expressions against all topics, in slices between which the event loop serves others.

RE2 takes time linear in the length of a name, but its factor is the size of the pattern's program: `(.{0,30}){0,30}b`
has 8,000 instructions, and takes 10 ms for one name of 245 characters and a minute for 5,000 of them. (Kafka resolves
expressions in a thread.) The group coordinator calls `prepare` before an operation that needs the result; the
operation calls `matching_topics`, which finds it. One expression is resolved at a time on a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final
from weakref import WeakKeyDictionary

from barnabas.core import work
from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.regex import Re2Pattern
from barnabas.server.coordination.ports import TopicCatalog

SLICE_COST: Final = 250_000
"""The cost of one slice, about 10 ms: instructions of the program, multiplied by the bytes of the names."""
_COST_OF_A_UNIT: Final = 500
_EXPRESSIONS_MAX: Final = 1_000
"""The limit for the resolved expressions that are kept for one catalog."""

_resolved: WeakKeyDictionary[TopicCatalog, dict[str, tuple[str, ...]]] = WeakKeyDictionary()
"""The topics that match an expression, by catalog. A catalog never changes; each image has a new one."""


class TopicRegexes:
    """Prepares expressions for the operations of a coordinator."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    async def prepare(self, catalog: TopicCatalog, patterns: Iterable[str]) -> None:
        """Resolve the expressions that are not resolved yet. An expression that RE2 rejects is left to the operation,
        which has other checks to make first. Raises KafkaError INVALID_REGULAR_EXPRESSION for an expression that would
        take too long."""
        for pattern in patterns:
            if pattern not in _of(catalog):
                async with self._one_at_a_time:
                    if pattern not in _of(catalog):
                        await _resolve(catalog, pattern)


def matching_topics(catalog: TopicCatalog, pattern: str) -> tuple[str, ...] | None:
    """The names of the topics that match, sorted; None if `prepare` has not resolved the expression."""
    return _of(catalog).get(pattern)


async def _resolve(catalog: TopicCatalog, pattern: str) -> None:
    try:
        compiled = Re2Pattern(pattern)
    except KafkaError:
        return
    names = catalog.names()
    size = compiled.program_size
    compiled.check_cost(names)
    found: list[str] = []
    cost = 0
    for name in names:
        if compiled.matches(name):
            found.append(name)
        cost += size * len(name)
        if cost >= SLICE_COST:
            work.count(cost // _COST_OF_A_UNIT)
            cost = 0
            await asyncio.sleep(0)
    kept = _of(catalog)
    if len(kept) >= _EXPRESSIONS_MAX:
        kept.clear()
    kept[pattern] = tuple(found)


def _of(catalog: TopicCatalog) -> dict[str, tuple[str, ...]]:
    kept = _resolved.get(catalog)
    if kept is None:
        kept = _resolved[catalog] = {}
    return kept
