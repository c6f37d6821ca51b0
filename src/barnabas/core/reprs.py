"""Machine: a `__repr__` for values that contain passwords, so that a log, an error or a debugger does not show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_HIDDEN = "<hidden>"


def repr_without(*hidden: str) -> Callable[[Any], str]:
    """The `__repr__` of a struct, dataclass or named tuple, with `<hidden>` in place of the values of these fields.

        class Login(Struct):
            user: str
            password: str
            __repr__ = repr_without("password")     # Login(user='alice', password=<hidden>)

    An empty value or None is shown, because it says that nothing is set.
    """

    def shown(self: Any) -> str:
        names = _field_names(type(self))
        assert set(hidden) <= set(names), f"{type(self).__name__} has no field {set(hidden) - set(names)}"
        fields = ((name, getattr(self, name)) for name in names)
        parts = (f"{name}={_HIDDEN if value and name in hidden else repr(value)}" for name, value in fields)
        return f"{type(self).__name__}({', '.join(parts)})"

    return shown


def _field_names(kind: Any) -> tuple[str, ...]:
    for attribute in ("__struct_fields__", "_fields", "__dataclass_fields__"):
        names = getattr(kind, attribute, None)
        if names is not None:
            return tuple(names)
    raise TypeError(f"{kind.__name__} is no struct, dataclass or named tuple")
