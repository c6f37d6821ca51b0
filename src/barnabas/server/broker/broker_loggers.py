"""Shell: the levels of loggers as configs of a resource of type BROKER_LOGGER, whose name is the id of the node.

The node that receives a request changes its own loggers (KIP-412). It forwards nothing and stores nothing.
IncrementalAlterConfigs sets a level, or deletes it, so that the logger has the level of the logger above. Kafka's rules
hold: a logger must exist, the level of `root` cannot be deleted, and there is nothing to append to a level.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.core.telemetry.levels import (
    ROOT_NAME,
    check_level,
    check_logger,
    describe_levels,
    set_level,
    unset_level,
)
from barnabas.protocol.wire.messages.describe_configs import DescribeConfigsResourceResult
from barnabas.protocol.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
)
from barnabas.server.metadata.config_source import ConfigValueSource

log = get_logger("barnabas.server.broker")

_SET = 0
_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def describe_loggers(wants: Callable[[str], bool]) -> list[DescribeConfigsResourceResult]:
    """The level in effect of each logger whose name is wanted."""
    return [
        DescribeConfigsResourceResult(
            name=name, value=level, config_source=ConfigValueSource.DYNAMIC_BROKER_LOGGER_CONFIG, synonyms=[]
        )
        for name, level in describe_levels().items()
        if wants(name)
    ]


def alter_loggers(
    resource: AlterConfigsResource, node_id: int, *, is_allowed: bool, validate_only: bool
) -> AlterConfigsResourceResponse:
    """Change levels as one resource of a request says: all of its changes, or none."""
    answer = AlterConfigsResourceResponse(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
    )
    try:
        if not is_allowed:
            raise KafkaError(_REFUSED)
        if resource.resource_name != str(node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {node_id} but received {resource.resource_name!r}.",
            )
        for change in resource.configs:
            _check(change)
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, str(error)
        return answer
    if not validate_only:
        for change in resource.configs:
            _apply(change)
    return answer


def _check(change: AlterableConfig) -> None:
    match change.config_operation:
        case 0:
            check_level(change.name, change.value or "")
        case 1:
            check_logger(change.name)
            if change.name == ROOT_NAME:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The log level of the root logger cannot be removed.")
        case _:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Log levels can be set and deleted; they cannot be appended or subtracted."
            )


def _apply(change: AlterableConfig) -> None:
    if change.config_operation == _SET:
        set_level(change.name, change.value or "")
    else:
        unset_level(change.name)
    log.warning("a log level was changed", logger=change.name, level=change.value or "that of the logger above")
