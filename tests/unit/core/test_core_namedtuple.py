"""Ours beside the standard library's: the same classes, made by both, behave the same."""

from __future__ import annotations

import copy
import pickle
import typing
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from barnabas.core.namedtuple import NamedTuple

T = TypeVar("T")


def build(base: Any) -> Any:
    class Point(base):  # type: ignore[misc]
        """A place."""

        x: int
        y: int = 2
        path: tuple[int, ...] = ()
        """Where it has been."""

        @property
        def sum(self) -> int:
            return self.x + self.y

        @classmethod
        def origin(cls) -> Any:
            return cls(0, 0)

        def __str__(self) -> str:
            return f"<{self.x}>"

    return Point


def build_generic(base: Any) -> Any:
    class Box(base, Generic[T]):  # type: ignore[misc]
        content: T

    return Box


def build_derived(base: Any) -> Any:
    class Named(build(base)):  # type: ignore[misc]
        def __new__(cls, x: int) -> Any:
            made = super().__new__(cls, x, 5)
            made.name = "n"
            return made

    return Named


def build_empty(base: Any) -> Any:
    class Nothing(base):  # type: ignore[misc]
        pass

    return Nothing


def outcome(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except (AttributeError, TypeError, ValueError) as error:
        return type(error)


def behaviour(base: Any) -> list[Any]:
    """Everything that a user of such classes can see."""
    point, box, named, nothing = build(base), build_generic(base), build_derived(base), build_empty(base)
    a = point(1)
    x, *rest = a
    match a:
        case point(1, y):
            matched = y
    return [
        [repr(a), str(a), tuple(a), a.x, a.y, a.path, a.sum, x, rest, matched],
        [repr(point(x=3, y=4)), repr(point(1, path=(2,))), repr(point.origin()), repr(point._make([7, 8, ()]))],
        [outcome(lambda: point()), outcome(lambda: point(1, z=2)), outcome(lambda: point(1, 2, (), 3))],
        [outcome(lambda: point._make([1])), outcome(lambda: a._replace(z=1))],
        [a == point(1), a == (1, 2, ()), a < point(2), hash(a) == hash((1, 2, ())), {a: 1}[point(1)]],
        [outcome(lambda: setattr(a, "x", 7)), outcome(lambda: setattr(a, "other", 7)), hasattr(a, "__dict__")],
        [repr(a._replace(y=9)), a._asdict(), point._fields, point._field_defaults, point.__match_args__, point.__doc__],
        [repr(copy.copy(a)), repr(copy.deepcopy(a)), isinstance(a, tuple), a.__getnewargs__()],
        [repr(box("b")), box[str]("b").content, repr(named(3)), named(3).name, named(3).y, repr(nothing())],
        point.__new__.__qualname__,
    ]


def test_behaves_like_the_standard_one() -> None:
    assert behaviour(NamedTuple) == behaviour(typing.NamedTuple)


class Pair(NamedTuple):
    a: int
    b: object = None


def test_pickles() -> None:
    assert pickle.loads(pickle.dumps(Pair(1, "b"))) == Pair(1, "b")
    assert type(pickle.loads(pickle.dumps(Pair(1)))) is Pair


def test_a_constructor_is_compiled_on_the_first_call() -> None:
    point = build(NamedTuple)
    before = point.__new__
    point(1)
    assert point.__new__ is not before
    assert point.__new__.__code__.co_varnames == ("_cls", "x", "y", "path")
