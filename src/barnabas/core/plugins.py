"""Shell: imports the classes of users that configs name, such as `authorizer.class.name`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from barnabas.core.config import ConfigError

_KAFKA: tuple[str, ...] = ("org.apache.kafka.", "kafka.")


def load_class(setting: str, name: str, builtin: str = "") -> Any:
    """The class that the config `setting` names, as `package.module:Class` or `package.module.Class`. `builtin` is a
    class of Kafka that Barnabas has, for the text of errors. Raises ConfigError."""
    expected = f"{builtin}, or a Python class" if builtin else "a Python class"
    if name.startswith(_KAFKA):
        raise ConfigError(f"{setting}={name} is a class of Apache Kafka. Use {expected} as package.module.Class.")
    module_name, _, class_name = name.rpartition(":") if ":" in name else name.rpartition(".")
    if not module_name or not class_name:
        raise ConfigError(f"{setting}={name}: expected {expected} as package.module.Class.")
    try:
        return getattr(import_module(module_name), class_name)
    except ImportError as error:
        raise ConfigError(
            f"{setting}={name}: the module {module_name} cannot be imported ({error}). Install its package in the "
            "environment of the broker."
        ) from error
    except AttributeError:
        raise ConfigError(f"{setting}={name}: the module {module_name} has no class {class_name}.") from None


def check_methods(setting: str, plugin: Any, methods: Sequence[str], port: str) -> None:
    """Raises ConfigError if the object lacks a method of its port."""
    missing = [method for method in methods if not callable(getattr(plugin, method, None))]
    if missing:
        raise ConfigError(
            f"{setting}={type(plugin).__module__}.{type(plugin).__qualname__}: the class lacks {', '.join(missing)}. "
            f"Its methods must be those of {port}."
        )
