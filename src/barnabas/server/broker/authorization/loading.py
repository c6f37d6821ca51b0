"""Shell: builds the authorizer that `authorizer.class.name` names."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final, cast

from barnabas.core.config import ConfigError
from barnabas.server.broker.authorization.ports import Authorizer

STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_METHODS: Final = ("authorize", "authorize_by_resource_type", "on_image", "on_caught_up")


def build_authorizer(configs: Mapping[str, str]) -> Authorizer | None:
    """The authorizer of a node; None if none is configured. Raises ConfigError."""
    name = configs.get("authorizer.class.name", "").strip()
    if not name:
        return None
    if name == STANDARD:
        from barnabas.server.broker.authorization.standard import StandardAuthorizer

        return StandardAuthorizer(configs)
    if name.startswith(("org.apache.kafka.", "kafka.")):
        raise ConfigError(
            f"authorizer.class.name={name} is a class of Apache Kafka. Use {STANDARD}, or a Python class as "
            "package.module.Class."
        )
    module_name, _, class_name = name.rpartition(":") if ":" in name else name.rpartition(".")
    if not module_name or not class_name:
        raise ConfigError(
            f"authorizer.class.name={name}: expected {STANDARD}, or a Python class as package.module.Class."
        )
    try:
        kind = getattr(import_module(module_name), class_name)
    except ImportError as error:
        raise ConfigError(
            f"authorizer.class.name={name}: the module {module_name} cannot be imported ({error}). Install its package "
            "in the environment of the broker."
        ) from error
    except AttributeError:
        raise ConfigError(
            f"authorizer.class.name={name}: the module {module_name} has no class {class_name}."
        ) from None
    authorizer = kind(configs)
    missing = [method for method in _METHODS if not callable(getattr(authorizer, method, None))]
    if missing or not hasattr(authorizer, "keeps_acls"):
        raise ConfigError(
            f"authorizer.class.name={name}: the class lacks {', '.join(missing) or 'keeps_acls'}. Its methods must be "
            "those of barnabas.server.broker.authorization.ports.Authorizer."
        )
    return cast("Authorizer", authorizer)
