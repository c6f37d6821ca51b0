"""Ours beside the standard library's: the same classes, made by both, behave the same."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any

import pytest

from barnabas.core.dataclass import dataclass

Make = Callable[..., Any]


def build(make: Make, **options: bool) -> Any:
    @make(**options)
    class Point:
        """With a default, a factory, and fields that are not compared, hashed or shown."""

        x: int
        y: int = 2
        path: list[int] = field(default_factory=list, hash=False)
        note: str = field(default="", compare=False)
        secret: str = field(default="s", repr=False)
        sum: int = field(init=False, default=0, compare=False)

    return Point


OPTIONS = [
    {"frozen": frozen, "slots": slots, "eq": eq, "order": order}
    for frozen in (False, True)
    for slots in (False, True)
    for eq, order in ((True, False), (True, True), (False, False))
]


def outcome(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except Exception as error:  # noqa: BLE001 - which one is what is compared
        return type(error)


def behaviour(cls: Any) -> list[Any]:
    """Everything that a user of the class can see."""
    a, b, c = cls(1), cls(x=1, note="other"), cls(1, 3, [4])
    return [
        repr(a),
        repr(c),
        outcome(lambda: cls()),
        outcome(lambda: cls(1, 2, [], "", "s", 5)),
        outcome(lambda: cls(1, z=2)),
        [a == b, a == c, a != b, a == (1, 2)],
        outcome(lambda: hash(a) == hash(b) and hash(a) == hash((1, 2, "s"))),
        [outcome(lambda: a < c), outcome(lambda: c <= a), outcome(lambda: a > b), outcome(lambda: b >= a)],
        outcome(lambda: a < (1, 2)),
        outcome(lambda: setattr(a, "x", 7)),
        outcome(lambda: delattr(b, "y")),
        outcome(lambda: b.y),
        cls(1).path is cls(1).path,
        repr(copy.copy(c)),
        repr(copy.deepcopy(c)),
        repr(dataclasses.replace(c, x=9)),
        dataclasses.asdict(c),
        [f.name for f in dataclasses.fields(cls)],
        cls.__match_args__,
        hasattr(c, "__dict__"),
        cls.__doc__,
        cls.__init__.__qualname__,
    ]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_behaves_like_the_standard_one(options: dict[str, bool]) -> None:
    assert behaviour(build(dataclass, **options)) == behaviour(build(dataclasses.dataclass, **options))


def build_family(make: Make) -> list[Any]:
    @make(frozen=True, slots=True)
    class Base:
        a: int

        def __repr__(self) -> str:
            return f"<{self.a}>"

    @make(frozen=True, slots=True)
    class Derived(Base):
        b: int = 5

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Base)

    @make(frozen=True)
    class Open:
        a: int

    class Plain(Open):
        def rename(self) -> str:
            self.name = "n"
            return self.name

    @make(slots=True)
    class Checked:
        a: int
        twice: int = field(init=False)

        def __post_init__(self) -> None:
            self.twice = 2 * self.a

        def __hash__(self) -> int:
            return 7

    @make
    class Bare:
        pass

    return [Base, Derived, Plain, Checked, Bare]


def family_behaviour(base: Any, derived: Any, plain: Any, checked: Any, bare: Any) -> list[Any]:
    return [
        repr(base(1)),
        repr(derived(1)),
        [derived(1).b, derived(1, 2).b, derived(1) == base(3), base(3) == derived(1), hash(derived(1)) == hash((1, 5))],
        outcome(lambda: setattr(derived(1), "a", 2)),
        [
            plain(1).rename(),
            repr(plain(1)),
            plain(1) == plain(1),
            plain(1) == plain(2),
            outcome(lambda: hash(plain(1))),
        ],
        outcome(lambda: setattr(plain(1), "a", 2)),
        [repr(checked(2)), hash(checked(2))],
        [repr(bare()), bare() == bare(), outcome(lambda: hash(bare()))],
    ]


def test_classes_that_define_methods_of_their_own_or_derive_from_others() -> None:
    assert family_behaviour(*build_family(dataclass)) == family_behaviour(*build_family(dataclasses.dataclass))


@dataclass(frozen=True, slots=True)
class Pair:
    a: int
    b: object = None


def test_pickles_and_shows_what_contains_itself() -> None:
    inner: list[object] = []
    pair = Pair(1, inner)
    inner.append(pair)
    assert repr(pair).endswith("Pair(a=1, b=[...])")
    assert pickle.loads(pickle.dumps(Pair(1, [2]))) == Pair(1, [2])


def test_a_method_is_compiled_on_its_first_call() -> None:
    cls = build(dataclass, frozen=True, slots=True)
    before = cls.__init__
    cls(1)
    assert cls.__init__ is not before
    assert cls.__init__.__code__.co_varnames[:3] == ("self", "x", "y")
