"""Machine: IncrementalAlterConfigs and AlterConfigs (`ConfigurationControlManager`, `ConfigAdminManager`).

The changes of one resource are all made, or none of them. Each resource succeeds or fails by itself. The legacy
AlterConfigs replaces all configs that were set on the resource.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TypeVar

from barnabas.core.config import ConfigType, default_of
from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages import alter_configs as legacy
from barnabas.protocol.wire.messages import incremental_alter_configs as incremental
from barnabas.server.metadata.config_rules import (
    LINK_CONFIGS,
    check_applied,
    check_broker_configs,
    check_client_metrics_configs,
    check_group_configs,
    check_no_link_configs,
    check_topic_configs,
)
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.configs.tables import BROKER_CONFIGS, CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from barnabas.server.metadata.controller.answers import RefusedError, duplicates, invalid_request, message_of
from barnabas.server.metadata.controller.eligible_leaders import check_min_isr, records_after_change
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.controller.topic_names import name_problem
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.small import ConfigResourceKey, ResourceType
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.other import ConfigRecord

_TABLES = {
    ResourceType.TOPIC: TOPIC_CONFIGS,
    ResourceType.BROKER: BROKER_CONFIGS,
    ResourceType.GROUP: GROUP_CONFIGS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
}


class ConfigOperation(IntEnum):
    """The operations on one config (`AlterConfigOp.OpType`)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def decide_incremental_alter_configs(
    image: ClusterImage, request: incremental.IncrementalAlterConfigsRequest, ctx: DecideContext
) -> Decision[MetadataRecord, incremental.IncrementalAlterConfigsResponse]:
    """Set, delete, append to, or subtract from single configs."""
    records, errors = _each(
        request.resources, lambda resource, given: _incremental(image, resource, given.configs, ctx)
    )
    responses = [
        incremental.AlterConfigsResourceResponse(
            resource_type=resource.type,
            resource_name=resource.name,
            error_code=ErrorCode.NONE if error is None else error.code,
            error_message=None if error is None else message_of(error),
        )
        for resource, error in errors.items()
    ]
    response = incremental.IncrementalAlterConfigsResponse(responses=responses)
    return Decision(response, () if request.validate_only else records)


def decide_alter_configs(
    image: ClusterImage, request: legacy.AlterConfigsRequest, ctx: DecideContext
) -> Decision[MetadataRecord, legacy.AlterConfigsResponse]:
    """Replace all configs of a resource."""
    records, errors = _each(request.resources, lambda resource, given: _replace(image, resource, given.configs, ctx))
    responses = [
        legacy.AlterConfigsResourceResponse(
            resource_type=resource.type,
            resource_name=resource.name,
            error_code=ErrorCode.NONE if error is None else error.code,
            error_message=None if error is None else message_of(error),
        )
        for resource, error in errors.items()
    ]
    return Decision(legacy.AlterConfigsResponse(responses=responses), () if request.validate_only else records)


GivenT = TypeVar("GivenT", incremental.AlterConfigsResource, legacy.AlterConfigsResource)


def _each(
    resources: Sequence[GivenT], change: Callable[[ConfigResourceKey, GivenT], list[MetadataRecord]]
) -> tuple[list[MetadataRecord], dict[ConfigResourceKey, KafkaError | None]]:
    """Call `change` for each resource that the request contains once. Returns the records of all changes, and for each
    resource the error, or None if the change succeeded."""
    twice = duplicates(ConfigResourceKey(given.resource_type, given.resource_name) for given in resources)
    records: list[MetadataRecord] = []
    errors: dict[ConfigResourceKey, KafkaError | None] = {}
    for given in resources:
        resource = ConfigResourceKey(given.resource_type, given.resource_name)
        if resource in errors:
            continue
        try:
            if resource in twice:
                raise invalid_request("Each resource must appear at most once.")
            if duplicates(config.name for config in given.configs):
                raise invalid_request("Error due to duplicate config keys")
            records += change(resource, given)
        except KafkaError as error:
            errors[resource] = error
        else:
            errors[resource] = None
    return records, errors


def _incremental(
    image: ClusterImage, resource: ConfigResourceKey, given: Sequence[incremental.AlterableConfig], ctx: DecideContext
) -> list[MetadataRecord]:
    nulls = [c.name for c in given if c.value is None and c.config_operation != ConfigOperation.DELETE]
    if nulls:
        raise invalid_request(f"Null value not supported for : {','.join(nulls)}")
    present = image.configs.of(resource)
    changes: dict[str, str | None] = {}
    for config in given:
        current = present.get(config.name)
        match config.config_operation:
            case ConfigOperation.SET:
                changes[config.name] = config.value
            case ConfigOperation.DELETE:
                changes[config.name] = None
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
                changes[config.name] = edit_list(resource, config, current)
            case unknown:
                raise invalid_request(f"Unknown operation type {unknown}")
    return _changed(image, resource, present, changes, ctx)


def _replace(
    image: ClusterImage, resource: ConfigResourceKey, given: Sequence[legacy.AlterableConfig], ctx: DecideContext
) -> list[MetadataRecord]:
    nulls = [config.name for config in given if config.value is None]
    if nulls:
        raise invalid_request(f"Null value not supported for : {','.join(nulls)}")
    present = image.configs.of(resource)
    changes: dict[str, str | None] = {config.name: config.value for config in given}
    changes.update((name, None) for name in sorted(present) if name not in changes and name not in LINK_CONFIGS)
    return _changed(image, resource, present, changes, ctx)


def _changed(
    image: ClusterImage,
    resource: ConfigResourceKey,
    present: Mapping[str, str],
    changes: Mapping[str, str | None],
    ctx: DecideContext,
) -> list[MetadataRecord]:
    """Check the resulting configs and that the resource exists. Returns the records of the configs that change."""
    if resource.type == ResourceType.TOPIC:
        check_no_link_configs(name for name, value in changes.items() if value != present.get(name))
    merged = {**present, **changes}
    check_min_isr(image, resource, changes)
    _check(image, resource, {name: value for name, value in merged.items() if value is not None}, ctx)
    if resource.type == ResourceType.BROKER:
        check_applied(changes, present, _open_listeners(image, resource))
    _check_exists(image, resource)
    records: list[MetadataRecord] = [
        ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
        for name, value in changes.items()
        # KAFKA-14136: setting a broker config to its current value makes the broker load it again, so a record is
        # written.
        if value != present.get(name) or (resource.type == ResourceType.BROKER and value is not None)
    ]
    return records + records_after_change(image, records)


def edit_list(resource: ConfigResourceKey, config: incremental.AlterableConfig, current: str | None) -> str:
    operation = ConfigOperation(config.config_operation)
    table = _TABLES.get(ResourceType(resource.type)) if resource.type in list(ResourceType) else None
    key = table.get(config.name) if table is not None else None
    if key is None or key.type is not ConfigType.LIST:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {operation.name} to key {config.name} because its type is not LIST.",
        )
    if current is None:
        current = key.to_text(default_of(key)) or ""
    items = [item for item in current.split(",") if item]
    assert config.value is not None, "null values were refused before"
    for item in config.value.split(","):
        if operation is ConfigOperation.APPEND:
            if item not in items:
                items.append(item)
        elif item in items:
            items.remove(item)
    return ",".join(items)


def _check(image: ClusterImage, resource: ConfigResourceKey, configs: Mapping[str, str], ctx: DecideContext) -> None:
    view = ConfigView(image.configs, node_id=ctx.settings.node_id, static=ctx.settings.static_config)
    match resource.type:
        case ResourceType.TOPIC:
            if not resource.name:
                raise invalid_request("Default topic resources are not allowed.")
            problem = name_problem(resource.name)
            if problem is not None:
                raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
            check_topic_configs(configs, view, image.configs.topic(resource.name))
        case ResourceType.BROKER:
            if resource.name:
                _broker_id(resource.name)
            check_broker_configs(configs, per_broker=bool(resource.name))
        case ResourceType.GROUP:
            if not resource.name:
                raise invalid_request("Default group resources are not allowed.")
            check_group_configs(configs, view)
        case ResourceType.CLIENT_METRICS:
            if not resource.name:
                raise invalid_request("Subscription name can't be empty")
            check_client_metrics_configs(configs)
        case unknown:
            raise invalid_request(f"Unknown resource type {unknown}")


def _open_listeners(image: ClusterImage, resource: ConfigResourceKey) -> list[str]:
    """The listeners with which a broker is registered."""
    broker = image.brokers.get(_broker_id(resource.name)) if resource.name else None
    return [] if broker is None else [endpoint.name for endpoint in broker.endpoints]


def _check_exists(image: ClusterImage, resource: ConfigResourceKey) -> None:
    if resource.type == ResourceType.TOPIC and resource.name not in image.topics:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist.")
    if resource.type == ResourceType.BROKER and resource.name and _broker_id(resource.name) not in image.brokers:
        raise RefusedError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {resource.name} found.")


def _broker_id(name: str) -> int:
    if not name.removeprefix("-").isdecimal() or not name.isascii():
        raise invalid_request("Unable to parse broker name as a base 10 number.")
    if name.startswith("-"):
        raise invalid_request("Invalid negative broker ID.")
    return int(name)
