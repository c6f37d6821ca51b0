"""The judge of recorded histories finds what is planted, and nothing in a history that is sound."""

from __future__ import annotations

import pytest

from tests.interop.java_rebalance.history import Event, find_problems

P = ("t-0",)


def own(at: int, member: str, event: str = "assigned") -> Event:
    return Event(at, member, event, P)


def read(at: int, member: str, first: int, next_offset: int) -> Event:
    return Event(at, member, "read", offsets=(("t-0", (first, next_offset)),))


def commit(at: int, member: str, offset: int, event: str = "committed", error: str = "") -> list[Event]:
    offsets = (("t-0", (offset,)),)
    sent = Event(at, member, "committing", offsets=offsets)
    return [sent, Event(at + 1, member, event, offsets=offsets, error=error)] if event else [sent]


HANDOVER = [own(1, "a"), read(2, "a", 0, 5), *commit(3, "a", 5), own(6, "a", "revoked"), own(7, "b")]

SOUND = {
    "handover": [*HANDOVER, read(8, "b", 5, 9), *commit(9, "b", 9)],
    "killed before its commit": [
        own(1, "a"),
        read(2, "a", 0, 5),
        Event(3, "a", "killed"),
        own(4, "b"),
        read(5, "b", 0, 5),
    ],
    "killed while it committed, which happened": [
        own(1, "a"),
        read(2, "a", 0, 5),
        *commit(3, "a", 5, ""),
        Event(4, "a", "killed"),
        own(5, "b"),
        read(6, "b", 5, 9),
    ],
    "asleep, and told so late": [
        *[own(1, "a"), read(2, "a", 0, 5), own(3, "b"), read(4, "b", 0, 5), *commit(5, "b", 5)],
        *[*commit(7, "a", 5, "refused", "CommitFailedException"), own(9, "a", "lost")],
    ],
}

SLEPT = [own(1, "a"), read(2, "a", 0, 5), commit(3, "a", 5)[0], own(4, "b"), read(5, "b", 5, 9), *commit(6, "b", 9)]
AWAKE = [Event(8, "a", "committed", offsets=(("t-0", (5,)),)), own(9, "a", "lost"), own(10, "b", "revoked")]
SOUND["asleep with the answer to its commit unread"] = [*SLEPT, *AWAKE, own(11, "a"), read(12, "a", 9, 10)]

PLANTED = {
    "two owners": ("NoTwoOwners", [own(1, "a"), own(2, "b"), own(3, "a", "revoked")]),
    "given twice": ("NoTwoOwners", [own(1, "a"), own(2, "a")]),
    "read after it was given up": ("NoTwoOwners", [*HANDOVER, read(8, "a", 5, 6)]),
    "records skipped at the handover": ("ContinuesAtCommit", [*HANDOVER, read(8, "b", 6, 9)]),
    "committed records again": ("ContinuesAtCommit", [*HANDOVER, read(8, "b", 4, 9)]),
    "a hole within": ("ContinuesAtCommit", [own(1, "a"), read(2, "a", 0, 5), read(3, "a", 6, 7)]),
    "a refused commit counts": (
        "ContinuesAtCommit",
        [
            *[own(1, "a"), read(2, "a", 0, 5), *commit(3, "a", 5, "refused", "CommitFailedException")],
            *[own(6, "a", "lost"), own(7, "b"), read(8, "b", 5, 6)],
        ],
    ),
    "a commit goes back": ("CommitsAscend", [own(1, "a"), *commit(2, "a", 5), *commit(4, "a", 4)]),
    "a commit from before takes effect after another": (
        "ContinuesAtCommit",
        [*SLEPT, *AWAKE, own(11, "a"), read(12, "a", 5, 10)],
    ),
    "a zombie commits": (
        "ZombieRefused",
        [own(1, "a"), own(2, "b"), *commit(3, "a", 5), own(5, "a", "lost"), own(6, "b", "revoked")],
    ),
}


@pytest.mark.parametrize("events", SOUND.values(), ids=SOUND.keys())
def test_a_sound_history(events: list[Event]) -> None:
    assert find_problems(events) == []


@pytest.mark.parametrize(("name", "events"), PLANTED.values(), ids=PLANTED.keys())
def test_what_is_planted_is_found(name: str, events: list[Event]) -> None:
    assert {problem.split(":")[0] for problem in find_problems(events)} == {name}
