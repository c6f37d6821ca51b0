"""Codec: regular expressions of clients, compiled by RE2.

Clients send them in ConsumerGroupHeartbeat (KIP-848 SubscribedTopicRegex), in ListTransactions, in the configs of
client metrics (KIP-714 `match`), and in JSON Schemas for a schema registry (`patternProperties`).

A client sends its pattern to a server, so no pattern may hold the event loop: Python's `re` backtracks, and `(a+)+b`
against a long name takes exponential time. Kafka uses RE2/J; `google-re2` is the library that RE2/J was translated
from, so syntax and semantics are the same: matching takes time linear in the length of the name, and back references
and look-around are invalid. As in Kafka (`TopicRegexResolver`), a pattern must match the whole name.

`re2` is imported with the first pattern: a broker without one neither loads it nor needs its memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from barnabas.core.errors import ErrorCode, KafkaError

PATTERN_LENGTH_MAX: Final = 1_000
"""The longest accepted pattern, in characters."""

COST_MAX: Final = 1_000_000_000
"""The largest cost of matching one expression, about half a minute. It is reached by programs of thousands of
instructions only: 10,000 topics with names of 50 characters allow 2,000 instructions."""

PATTERN_MEMORY_MAX: Final = 256 * 1024
"""The memory of one compiled pattern, in bytes (RE2's `max_mem`): its program, about 10,000 instructions at most, and
the states cached while matching. `re2` caches 128 compiled patterns per process, which is 32 MiB at most."""


class Re2Pattern:
    """A compiled pattern. Raises KafkaError INVALID_REGULAR_EXPRESSION."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._compiled = _compile(pattern)

    @property
    def program_size(self) -> int:
        """The number of instructions: the factor of the time that matching a name takes."""
        return int(self._compiled.programsize)

    def check_cost(self, names: Sequence[str]) -> int:
        """The cost of matching these names: instructions of the program, multiplied by the characters of the names.
        Raises KafkaError INVALID_REGULAR_EXPRESSION if the cost is larger than COST_MAX."""
        cost = self.program_size * sum(map(len, names))
        if cost > COST_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"`{self.pattern}` is too expensive for {len(names)} names: its program has {self.program_size} "
                "instructions. Use smaller repetition counts.",
            )
        return cost

    def matches(self, name: str) -> bool:
        """Whether the pattern matches all of `name`."""
        return self._compiled.fullmatch(name.encode()) is not None

    def is_in(self, text: str) -> bool:
        """Whether the pattern matches any part of `text`."""
        return self._compiled.search(text.encode()) is not None

    def select(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names that the pattern matches, in the order of `names`."""
        fullmatch = self._compiled.fullmatch
        return tuple(name for name in names if fullmatch(name.encode()))


def _compile(pattern: str) -> Any:
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise _invalid(pattern[:50] + "...", f"it is longer than {PATTERN_LENGTH_MAX} characters")
    import re2

    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_MAX
    options.never_capture = True
    options.log_errors = False  # RE2 would write to stderr; the client gets the error in its response
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else b"unknown error"
        raise _invalid(pattern, reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason) from None


def _invalid(pattern: str, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION, f"`{pattern}` is not a valid regular expression (RE2 syntax): {reason}."
    )
