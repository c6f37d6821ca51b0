"""Machine: where two brokers' answers differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

MISSING = "never came so far"
_MESSAGES = frozenset({"error_message", "batch_index_error_message"})


class Difference(NamedTuple):
    """One field of one answer."""

    label: str
    path: str
    ours: object
    theirs: object

    def __str__(self) -> str:
        return f"{self.label}: {self.path}\n    ours   {self.ours!r}\n    kafka  {self.theirs!r}"


def differences(
    ours: Sequence[tuple[str, Any]],
    theirs: Sequence[tuple[str, Any]],
    *,
    messages: Literal["text", "presence"] = "presence",
) -> Iterator[Difference]:
    """Every differing field. Error messages are prose: `presence` asks only that we say something where they do."""
    known = _by_label(theirs)
    for label, mine in _by_label(ours).items():
        other = known.pop(label, MISSING)
        for path, a, b in _walk(mine, other, ""):
            if messages == "presence" and path.rpartition(".")[2] in _MESSAGES and (a or not b):
                continue
            yield Difference(label, path, a, b)
    for label, other in known.items():
        yield Difference(label, "", MISSING, other)


def _by_label(answers: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Answers by label; one that comes again gets a number."""
    found: dict[str, Any] = {}
    for label, answer in answers:
        unique, count = label, 1
        while unique in found:
            count += 1
            unique = f"{label} ({count})"
        found[unique] = answer
    return found


def _walk(a: Any, b: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, dict) and isinstance(b, dict):
        for name in {**a, **b}:
            yield from _walk(a.get(name, MISSING), b.get(name, MISSING), f"{path}.{name}" if path else str(name))
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for index, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _walk(x, y, f"{path}[{index}]")
    elif a != b:
        yield path, a, b
