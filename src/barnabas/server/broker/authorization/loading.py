"""Shell: builds the authorizer that `authorizer.class.name` names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from barnabas.core.config import ConfigError
from barnabas.core.plugins import check_methods, load_class
from barnabas.core.telemetry import Metrics
from barnabas.server.broker.authorization.ports import Authorizer

STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_SETTING: Final = "authorizer.class.name"
_PORT: Final = "barnabas.server.broker.authorization.ports.Authorizer"
_METHODS: Final = ("authorize", "authorize_by_resource_type", "on_image", "on_caught_up")


def build_authorizer(configs: Mapping[str, str], metrics: Metrics | None = None) -> Authorizer | None:
    """The authorizer of a node; None if none is configured. Raises ConfigError."""
    authorizer = _build(configs)
    if metrics is not None and authorizer is not None and hasattr(authorizer, "add_metrics"):
        authorizer.add_metrics(metrics)
    return authorizer


def _build(configs: Mapping[str, str]) -> Authorizer | None:
    name = configs.get(_SETTING, "").strip()
    if not name:
        return None
    if name == STANDARD:
        from barnabas.server.broker.authorization.standard import StandardAuthorizer

        return StandardAuthorizer(configs)
    authorizer = load_class(_SETTING, name, STANDARD)(configs)
    check_methods(_SETTING, authorizer, _METHODS, _PORT)
    if not hasattr(authorizer, "keeps_acls"):
        raise ConfigError(f"{_SETTING}={name}: the class lacks keeps_acls, a property of {_PORT}.")
    return cast("Authorizer", authorizer)
