"""Machine: finds changes of this broker's listeners in a request that alters configs, and lets the broker check them.

Only the broker itself can read its certificates, so administrators send such changes to the broker (Kafka's
`ConfigAdminManager.preprocess`). The controller alone decides on all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security.operations import AclOperation
from barnabas.server.broker.authorization.checks import CLUSTER, ClientRights
from barnabas.server.broker.authorization.grants import grants_of
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.config_rules import is_about_listeners
from barnabas.server.metadata.image.small import ConfigResourceKey, ResourceType

if TYPE_CHECKING:
    from barnabas.server.broker.handlers.admin.port import AdminPort


class ListenerConfigs(Protocol):
    """The listeners of this broker."""

    def check(self, dynamic: Mapping[str, str]) -> None:
        """Raises ConfigError if the listeners cannot have the dynamic configs `dynamic` of this broker."""
        ...


def refused_listener_changes(
    port: AdminPort,
    ctx: RequestContext,
    resources: Sequence[Any],
    altered: Callable[[Any, Mapping[str, str]], Mapping[str, str]],
) -> dict[int, KafkaError]:
    """The errors of those `resources` of a request that change the listeners in a way that the broker refuses, by their
    index. `altered` gives the configs of a resource after its change, of the resource and its present configs.

    Nothing is checked for a client that may not alter configs, whom the controller refuses: the answers tell which
    files the broker can read.
    """
    found: dict[int, KafkaError] = {}
    listeners = port.listener_configs
    if listeners is None:
        return found
    for index, resource in enumerate(resources):
        if resource.resource_type != ResourceType.BROKER or not resource.resource_name:
            continue
        present = port.metadata.image.configs.of(ConfigResourceKey(resource.resource_type, resource.resource_name))
        try:
            after = altered(resource, present)
            is_named = any(is_about_listeners(config.name) for config in resource.configs)
            if not is_named and _of_listeners(present) == _of_listeners(after):
                continue
            if not _may_alter(port, ctx):
                break
            _check(port.node_id, listeners, resource, after)
        except ConfigError as error:  # Kafka has this code, too (KAFKA-13609)
            found[index] = KafkaError(ErrorCode.INVALID_REQUEST, error.detail)
        except KafkaError as error:
            found[index] = error
    return found


def _check(node_id: int, listeners: ListenerConfigs, resource: Any, dynamic: Mapping[str, str]) -> None:
    if resource.resource_name != str(node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node_id}, but received {resource.resource_name}: the configs of "
            "a broker's listeners are altered with a request to this broker.",
        )
    listeners.check(dynamic)


def _may_alter(port: AdminPort, ctx: RequestContext) -> bool:
    authorizer = port.authorizer
    if authorizer is None:
        return True
    rights = ClientRights(authorizer, grants_of(authorizer), ctx)
    return rights.allows(AclOperation.ALTER_CONFIGS, CLUSTER, silent=True)


def _of_listeners(configs: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in configs.items() if is_about_listeners(name)}
