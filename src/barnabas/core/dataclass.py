"""Value: the standard library's dataclass, whose methods are compiled when they are first called.

    from barnabas.core.dataclass import dataclass

An idle broker has some 150 dataclasses, most of them without an instance. To compile six methods for each was a third
of the CPU time of its start, and two megabytes. Here a class costs its fields. Type checkers see the original, and
`fields`, `replace`, `asdict`, `match`, `copy` and `pickle` work as with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final

_COMPARISONS: Final = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}

Write = Callable[[type, dict[str, Any]], str]
"""The text of a class's method; what the text refers to goes into the scope."""


def _dataclass(*, frozen: bool = False, slots: bool = False, eq: bool = True, order: bool = False) -> Any:
    """Those options of `dataclasses.dataclass` that this code uses. A method that the class itself defines stays."""

    def decorate(cls: type) -> type:
        cls.__doc__ = cls.__doc__ or cls.__name__  # else `dataclasses` works out a signature, which is slow
        own = {name for name, value in cls.__dict__.items() if value is not None}
        made: type = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
        methods: dict[str, Any] = {"__init__": _later(made, "__init__", _write_init), "__repr__": _repr}
        if eq:
            methods["__eq__"] = _later(made, "__eq__", _comparing("__eq__", "=="))
            methods["__hash__"] = _later(made, "__hash__", _write_hash) if frozen else None
        if order:
            methods |= {name: _later(made, name, _comparing(name, sign)) for name, sign in _COMPARISONS.items()}
        if frozen:
            methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        if frozen and slots:
            methods |= {"__getstate__": _get_state, "__setstate__": _set_state}
        for name in methods.keys() - own:
            setattr(made, name, methods[name])
        return made

    return decorate


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **options):
        decorate = _dataclass(**options)
        return decorate if cls is None else decorate(cls)


def _later(cls: type, name: str, write: Write) -> Callable[..., Any]:
    """A method that on its first call is replaced by what `write` writes. Two threads may both do so."""

    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        scope: dict[str, Any] = {
            "__name__": cls.__module__,
            "__set__": object.__setattr__,
            "__unset__": dataclasses.MISSING,
        }
        exec(write(cls, scope), scope)
        compiled = scope[name]
        compiled.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, compiled)
        return compiled(self, *args, **kwargs)

    return method


def _write_init(cls: type, scope: dict[str, Any]) -> str:
    """`def __init__(self, a, b=__b, c=__unset__): ...`, where `__b` is the default of b, and `__c` makes one for c."""
    frozen = cls.__dict__.get("__setattr__") is _refuse_to_set
    assign = "__set__(self, {0!r}, {1})" if frozen else "self.{0} = {1}"
    parameters, lines = ["self"], []
    for field in dataclasses.fields(cls):
        name, value, default = field.name, field.name, ""
        if field.default is not dataclasses.MISSING:
            scope[f"__{name}"] = field.default
            value, default = name if field.init else f"__{name}", f"=__{name}"
        elif field.default_factory is not dataclasses.MISSING:
            scope[f"__{name}"] = field.default_factory
            value = f"__{name}() if {name} is __unset__ else {name}" if field.init else f"__{name}()"
            default = "=__unset__"
        elif not field.init:
            continue  # __post_init__ sets it
        if field.init:
            parameters.append(name + default)
        lines.append(assign.format(name, value))
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    return f"def __init__({', '.join(parameters)}):\n    " + "\n    ".join(lines or ["pass"])


def _comparing(name: str, sign: str) -> Write:
    def write(cls: type, _scope: dict[str, Any]) -> str:
        names = [field.name for field in dataclasses.fields(cls) if field.compare]
        return (
            f"def {name}(self, other):\n"
            "    if other.__class__ is not self.__class__:\n"
            "        return NotImplemented\n"
            f"    return {_tuple('self', names)} {sign} {_tuple('other', names)}"
        )

    return write


def _write_hash(cls: type, _scope: dict[str, Any]) -> str:
    names = [f.name for f in dataclasses.fields(cls) if (f.compare if f.hash is None else f.hash)]
    return f"def __hash__(self):\n    return hash({_tuple('self', names)})"


def _tuple(of: str, names: list[str]) -> str:
    return "(" + "".join(f"{of}.{name}, " for name in names) + ")"


# What follows is the same for every class.


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    if _is_frozen(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_to_delete(self: Any, name: str) -> None:
    if _is_frozen(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _is_frozen(self: Any, name: str) -> bool:
    """A plain class derived from a frozen one may have attributes of its own."""
    return "__dataclass_fields__" in type(self).__dict__ or name in self.__dataclass_fields__


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
