"""Machine: checks the types of the arguments of a client's methods against the annotations of the methods.

    @checks_arguments()
    class AsyncAdmin:
        async def create_topic(self, name: str, num_partitions: int = -1, ...) -> CreatedTopic: ...

    await admin.create_topic("orders", "three")
    ArgumentTypeError: create_topic: num_partitions must be an int, not 'three' (str).

Lists, mappings, tuples and the fields of values (`NewTopic`, `TopicPartition`) are checked, too. A generator is read
into a list first, so that the method can iterate over it.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import typing
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Final, TypeVar

from msgspec import Struct

from barnabas.client.errors import ArgumentTypeError

C = TypeVar("C", bound=type)

Check = Callable[[Any], None]
"""Raises _MismatchError for a value of the wrong type."""

_TEXT: Final = (str, bytes, bytearray)
_PLAIN: Final = (int, str, list, dict, tuple, set, frozenset, NoneType)
"""Types of arguments that are no generators, for a fast check."""


class _MismatchError(Exception):
    """`expected` is the expected type in words; `path` leads from the argument to the wrong part: `[0].name`."""

    def __init__(self, expected: str, value: object) -> None:
        self.expected = expected
        self.value = value
        self.path = ""


def checks_arguments(*, without: Container[str] = ()) -> Callable[[C], C]:
    """Decorate a class: its public methods, except those named in `without`, check their arguments before they begin.

    The methods raise ArgumentTypeError, which is both a ConfigError and a TypeError.
    """

    def decorate(cls: C) -> C:
        for name, member in list(vars(cls).items()):
            if inspect.isfunction(member) and not name.startswith("_") and name not in without:
                setattr(cls, name, _checked(member))
        return cls

    return decorate


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method with a check of its arguments. The check is compiled at the first call, when all annotations exist."""
    if len(inspect.signature(method).parameters) < 2 or hasattr(method, "__wrapped__"):
        return method  # without arguments; or it wraps a method that checks them
    checks = functools.cache(lambda: ArgumentChecks(method))

    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def waiting(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            args, kwargs = checks().check(args, kwargs)
            return await method(self, *args, **kwargs)

        return waiting

    @functools.wraps(method)
    def calling(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = checks().check(args, kwargs)
        return method(self, *args, **kwargs)

    return calling


class ArgumentChecks:
    """The checks of one method's arguments."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._name = method.__name__
        hints = typing.get_type_hints(method)
        self._positional: list[tuple[str, Check]] = []
        self._rest: tuple[str, Check] | None = None
        self._by_name: dict[str, Check] = {}
        for name, parameter in list(inspect.signature(method).parameters.items())[1:]:
            check = check_of(hints.get(name, Any))
            if parameter.kind is parameter.VAR_POSITIONAL:
                self._rest = name, check
            elif parameter.kind is not parameter.VAR_KEYWORD:
                self._by_name[name] = check
                if parameter.kind is not parameter.KEYWORD_ONLY:
                    self._positional.append((name, check))

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Check all arguments, and return them with every generator replaced by a list. Missing and unknown arguments
        are left to the call itself. Raises ArgumentTypeError."""
        positional = list(args)
        for index, value in enumerate(args):
            if index < len(self._positional):
                positional[index] = self._one(*self._positional[index], value)
            elif self._rest is not None:
                name, check = self._rest
                self._one(f"{name}[{index - len(self._positional)}]", check, value)
        named = {name: self._one(name, self._by_name.get(name, _anything), value) for name, value in kwargs.items()}
        return tuple(positional), named

    def _one(self, name: str, check: Check, value: Any) -> Any:
        if not isinstance(value, _PLAIN) and isinstance(value, Iterable) and not isinstance(value, Collection):
            value = list(value)
        try:
            check(value)
        except _MismatchError as wrong:
            hint = f"; write [{wrong.value!r:.100}]" if _is_single(wrong) else ""
            raise ArgumentTypeError(
                f"{self._name}: {name}{wrong.path} must be {wrong.expected}, not {_shown(wrong.value)}{hint}."
            ) from None
        return value


def _shown(value: Any) -> str:
    return "None" if value is None else f"{value!r:.100} ({type(value).__name__})"


def _is_single(wrong: _MismatchError) -> bool:
    """Whether a list of texts was expected and one text was given."""
    return isinstance(wrong.value, str) and wrong.expected.startswith("a list of texts")


def _anything(value: Any) -> None:
    """The check of an argument whose type is not checked."""


@functools.cache
def check_of(annotation: Any) -> Check:
    """The check of one annotation. Annotations that no rule covers are not checked."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is None or annotation is NoneType:
        return _check_by(lambda value: value is None, "None")
    if origin in (typing.Union, UnionType):
        return _check_any_of(annotation, [check_of(part) for part in parts])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _check_mapping(annotation, *map(check_of, parts))
    if origin is tuple and Ellipsis not in parts:
        return _check_tuple(annotation, [check_of(part) for part in parts])
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _check_items(annotation, origin, check_of(parts[0]))
    if origin is Callable:
        return _check_by(callable, in_words(annotation))
    kind = annotation if origin is None else origin
    if kind in (int, bool):
        return _check_by(_is_integral, in_words(kind))
    if kind is float:
        return _check_by(lambda value: _is_integral(value) or hasattr(type(value), "__float__"), in_words(kind))
    if isinstance(annotation, typing.NewType):
        return check_of(annotation.__supertype__)
    if not isinstance(kind, type) or kind is object or getattr(kind, "_is_protocol", False):
        return _anything
    if issubclass(kind, Enum):
        return _check_by(lambda value: isinstance(value, kind) or _is_number_of(kind, value), in_words(kind))
    return _check_value(kind)


def in_words(annotation: Any) -> str:
    """A type in the words of an error message."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    simple = {str: "a text", int: "an int", float: "a number", bool: "True or False", NoneType: "None", bytes: "bytes"}
    if annotation in simple:
        return simple[annotation]
    if origin in (typing.Union, UnionType):
        return " or ".join(in_words(part) for part in parts)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"a mapping of {_many(parts[0])} to {_many(parts[1])}"
    if origin is tuple and Ellipsis not in parts:
        return f"a tuple of {', '.join(in_words(part) for part in parts)}"
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return f"a list of {_many(parts[0])}"
    if origin is Callable:
        return "a function"
    kind = annotation if origin is None else origin
    members = f" ({', '.join(kind.__members__)})" if isinstance(kind, type) and issubclass(kind, Enum) else ""
    return f"{'an' if kind.__name__[0] in 'AEIO' else 'a'} {kind.__name__}{members}"


def _many(annotation: Any) -> str:
    words = in_words(annotation)
    if typing.get_origin(annotation) is not None or words in ("None", "bytes", "True or False"):
        return words
    return words.split(" ", 1)[1] + "s"


def _check_by(test: Callable[[Any], bool], expected: str) -> Check:
    def check(value: Any) -> None:
        if not test(value):
            raise _MismatchError(expected, value)

    return check


def _check_any_of(annotation: Any, checks: list[Check]) -> Check:
    takes_none = NoneType in typing.get_args(annotation)

    def check(value: Any) -> None:
        if value is None and takes_none:
            return
        deepest: _MismatchError | None = None
        for one in checks:
            try:
                one(value)
            except _MismatchError as wrong:
                if wrong.path and (deepest is None or len(wrong.path) > len(deepest.path)):
                    deepest = wrong
            else:
                return
        raise deepest or _MismatchError(in_words(annotation), value)

    return check


def _check_items(annotation: Any, origin: type, item: Check) -> Check:
    """The check of a list, or of any other collection: only a `Sequence` must have an order."""

    def check(value: Any) -> None:
        ordered = isinstance(value, Sequence) or not issubclass(origin, Sequence)
        if isinstance(value, _TEXT) or not isinstance(value, Collection) or not ordered:
            if isinstance(value, Iterable) and not isinstance(value, _TEXT) and ordered:
                return  # an iterator inside of another argument: the method reads it
            raise _MismatchError(in_words(annotation), value)
        _check_each(value, itertools.repeat(item))

    return check


def _check_mapping(annotation: Any, key: Check, item: Check) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, Mapping):
            raise _MismatchError(in_words(annotation), value)
        for name, one in value.items():
            at = ""
            try:
                key(name)
                at = "item"
                item(one)
            except _MismatchError as wrong:
                wrong.path = (f"[{name!r:.60}]" if at else f" key {name!r:.60}") + wrong.path
                raise

    return check


def _check_tuple(annotation: Any, items: list[Check]) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, Sequence) or isinstance(value, _TEXT) or len(value) != len(items):
            raise _MismatchError(in_words(annotation), value)
        _check_each(value, items)

    return check


def _check_each(values: Iterable[Any], checks: Iterable[Check]) -> None:
    """Check every value by the check at the same place."""
    for index, (one, check) in enumerate(zip(values, checks, strict=False)):  # `checks` may be endless
        try:
            check(one)
        except _MismatchError as wrong:
            wrong.path = f"[{index}]" + wrong.path
            raise


def _check_value(kind: type) -> Check:
    """The check of a value and of its fields, if it is a dataclass, a struct or a named tuple."""
    expected = in_words(kind)
    has_fields = is_dataclass(kind) or issubclass(kind, Struct) or hasattr(kind, "_fields")
    fields: list[tuple[str, Check]] | None = None if has_fields else []

    def check(value: Any) -> None:
        nonlocal fields
        if not isinstance(value, kind):
            raise _MismatchError(expected, value)
        if fields is None:
            hints = typing.get_type_hints(kind)
            fields = [(name, check_of(hint)) for name, hint in hints.items() if hasattr(value, name)]
        for name, one in fields:
            try:
                one(getattr(value, name))
            except _MismatchError as wrong:
                wrong.path = f".{name}" + wrong.path
                raise

    return check


def _is_integral(value: Any) -> bool:
    return isinstance(value, int) or hasattr(type(value), "__index__")


def _is_number_of(kind: type[Enum], value: Any) -> bool:
    """Whether the value is the number (or the text) of a member of an IntEnum (or StrEnum)."""
    return issubclass(kind, (int, str)) and not isinstance(value, Enum) and value in kind._value2member_map_
