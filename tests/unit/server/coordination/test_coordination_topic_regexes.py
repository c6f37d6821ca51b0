"""Expressions are resolved in slices, so that even one with a large program holds nobody up."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.core import work
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire import regex
from barnabas.protocol.wire.regex import Re2Pattern
from barnabas.server.coordination import topic_regexes
from barnabas.server.coordination.topic_regexes import SLICE_COST, TopicRegexes, matching_topics
from tests.unit.server.coordination.kit import Catalog

HOSTILE = [
    "(a+)+b", "(a|aa)+$" * 5, "(.*a){25}b", "(x+x+)+y", ".*" * 300, "(a?){50}a{50}", "(.{0,30}){0,30}b",
    "(((a?){10}){10}){5}", "|".join(["a*b"] * 200), "(" * 300 + "a" + ")*" * 300, r"(\pL+)+\pN",
]  # fmt: skip


async def steps_of(catalog: Catalog, pattern: str) -> tuple[int, int]:
    """The number of steps in which the expression is resolved, and the most units of one."""
    task = asyncio.ensure_future(TopicRegexes().prepare(catalog, [pattern]))
    steps = longest = work.STEP.units = 0
    while not task.done():
        await asyncio.sleep(0)
        steps, longest, work.STEP.units = steps + 1, max(longest, work.STEP.units), 0
    task.result()
    return steps, longest


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_hostile_expression_is_resolved_in_short_steps(pattern: str) -> None:
    catalog = Catalog(**{f"{'a' * 100}{i:03}": 1 for i in range(100)})
    cost = Re2Pattern(pattern).program_size * 103 * 100
    steps, longest = asyncio.run(steps_of(catalog, pattern))
    assert steps >= cost // (SLICE_COST + 103 * Re2Pattern(pattern).program_size)
    assert longest <= work.STEP_UNITS_MAX


def test_a_resolved_expression_is_not_matched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(orders=1, payments=1)
    asyncio.run(steps_of(catalog, "ord.*"))

    def compiled(pattern: str) -> Re2Pattern:
        raise AssertionError(f"{pattern} is compiled again")

    monkeypatch.setattr(topic_regexes, "Re2Pattern", compiled)
    assert matching_topics(catalog, "ord.*") == ("orders",)
    asyncio.run(steps_of(catalog, "ord.*"))


def test_an_expression_that_would_take_minutes_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regex, "COST_MAX", 1_000_000)
    catalog = Catalog(**{f"topic-{i:03}": 1 for i in range(100)})
    asyncio.run(steps_of(catalog, "topic-.*"))
    with pytest.raises(KafkaError, match="too expensive for 100 names") as error:
        asyncio.run(steps_of(catalog, "(.{0,30}){0,30}b"))
    assert error.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
