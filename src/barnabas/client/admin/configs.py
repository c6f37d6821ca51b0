"""Shell: configs of topics, brokers, groups and client metrics; the brokers themselves; their log directories."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from barnabas.client.admin.requests import item_error
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.metadata import BrokerAddress
from barnabas.client.cluster.versions import Versioned
from barnabas.client.errors import BrokerUnreachableError
from barnabas.client.values import (
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    LogDirDescription,
    ReplicaSize,
)
from barnabas.core.config import ConfigError
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages import alter_configs as legacy
from barnabas.protocol.wire.messages import incremental_alter_configs as incremental
from barnabas.protocol.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from barnabas.protocol.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

V = TypeVar("V")

Configs = dict[str, ConfigEntry]


async def describe_configs(
    cluster: Cluster,
    resources: Iterable[ConfigResource],
    *,
    names: Iterable[str] | None,
    include_synonyms: bool,
    include_documentation: bool,
    deadline: float,
) -> dict[ConfigResource, Configs | KafkaError]:
    keys = None if names is None else list(names)

    async def ask(broker_id: int | None, part: list[ConfigResource]) -> dict[ConfigResource, Configs | KafkaError]:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=int(resource.type), resource_name=resource.name, configuration_keys=keys
                )
                for resource in part
            ],
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
        )
        response: DescribeConfigsResponse = await _send(cluster, broker_id, request, deadline)
        results: dict[ConfigResource, Configs | KafkaError] = {}
        for result in response.results:
            resource = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
            if result.error_code:
                results[resource] = _resource_error(result.error_code, result.error_message, resource)
            else:
                results[resource] = {config.name: _entry(config) for config in result.configs}
        return results

    return await _by_broker(cluster, resources, ask)


async def incremental_alter_configs(
    cluster: Cluster,
    changes: Mapping[ConfigResource, Iterable[ConfigChange]],
    *,
    validate_only: bool,
    deadline: float,
) -> dict[ConfigResource, KafkaError | None]:
    async def ask(broker_id: int | None, part: list[ConfigResource]) -> dict[ConfigResource, KafkaError | None]:
        request = incremental.IncrementalAlterConfigsRequest(
            resources=[
                incremental.AlterConfigsResource(
                    resource_type=int(resource.type),
                    resource_name=resource.name,
                    configs=[
                        incremental.AlterableConfig(name=c.name, config_operation=int(c.op), value=c.value)
                        for c in changes[resource]
                    ],
                )
                for resource in part
            ],
            validate_only=validate_only,
        )
        response: incremental.IncrementalAlterConfigsResponse = await _send(
            cluster, broker_id, request, deadline, or_any=True
        )
        return _alter_results(response.responses)

    return await _by_broker(cluster, changes, ask)


async def alter_configs(
    cluster: Cluster,
    configs: Mapping[ConfigResource, Mapping[str, str | None]],
    *,
    validate_only: bool,
    deadline: float,
) -> dict[ConfigResource, KafkaError | None]:
    async def ask(broker_id: int | None, part: list[ConfigResource]) -> dict[ConfigResource, KafkaError | None]:
        request = legacy.AlterConfigsRequest(
            resources=[
                legacy.AlterConfigsResource(
                    resource_type=int(resource.type),
                    resource_name=resource.name,
                    configs=[legacy.AlterableConfig(name=n, value=v) for n, v in configs[resource].items()],
                )
                for resource in part
            ],
            validate_only=validate_only,
        )
        response: legacy.AlterConfigsResponse = await _send(cluster, broker_id, request, deadline)
        return _alter_results(response.responses)

    return await _by_broker(cluster, configs, ask)


async def describe_cluster(cluster: Cluster, *, include_fenced_brokers: bool, deadline: float) -> ClusterDescription:
    def build(version: int) -> DescribeClusterRequest:
        return DescribeClusterRequest(include_fenced_brokers=include_fenced_brokers and version >= 2)

    async def attempt() -> DescribeClusterResponse:
        request = Versioned(ApiKey.DESCRIBE_CLUSTER, build)
        response: DescribeClusterResponse = await cluster.ask_any(request, deadline=deadline)
        if response.error_code:
            raise item_error(response.error_code, response.error_message, "Describing the cluster")
        return response

    found: DescribeClusterResponse = await cluster.retrying("Describing the cluster", attempt, deadline=deadline)
    brokers = tuple(
        BrokerAddress(b.broker_id, b.host, b.port, b.rack) for b in sorted(found.brokers, key=lambda b: b.broker_id)
    )
    fenced = frozenset(b.broker_id for b in found.brokers if b.is_fenced)
    return ClusterDescription(found.cluster_id, found.controller_id, brokers, fenced)


async def list_config_resources(
    cluster: Cluster, types: Iterable[ConfigResourceType], *, deadline: float
) -> list[ConfigResource]:
    wanted = [int(kind) for kind in types]

    def build(version: int) -> ListConfigResourcesRequest:
        return ListConfigResourcesRequest(resource_types=wanted if version >= 1 else [])

    async def attempt() -> ListConfigResourcesResponse:
        request = Versioned(ApiKey.LIST_CONFIG_RESOURCES, build)
        response: ListConfigResourcesResponse = await cluster.ask_any(request, deadline=deadline)
        if response.error_code:
            raise item_error(response.error_code, None, "Listing the resources with configs")
        return response

    found: ListConfigResourcesResponse = await cluster.retrying("Listing resources", attempt, deadline=deadline)
    return [ConfigResource(ConfigResourceType(r.resource_type), r.resource_name) for r in found.config_resources]


async def describe_log_dirs(
    cluster: Cluster, brokers: Iterable[int] | None, *, deadline: float
) -> dict[int, dict[str, LogDirDescription | KafkaError]]:
    if brokers is None:
        await cluster.refresh(deadline=deadline)
        brokers = sorted(cluster.metadata.brokers)

    async def ask(broker_id: int) -> dict[str, LogDirDescription | KafkaError]:
        response: DescribeLogDirsResponse = await _send(
            cluster, broker_id, DescribeLogDirsRequest(topics=None), deadline
        )
        if response.error_code:
            raise item_error(response.error_code, None, f"Log directories of broker {broker_id}")
        directories: dict[str, LogDirDescription | KafkaError] = {}
        for d in response.results:
            if d.error_code:
                directories[d.log_dir] = item_error(d.error_code, None, f"Log directory {d.log_dir}")
                continue
            replicas = {
                TopicPartition(topic.name, p.partition_index): ReplicaSize(
                    p.partition_size, p.offset_lag, p.is_future_key
                )
                for topic in d.topics
                for p in topic.partitions
            }
            directories[d.log_dir] = LogDirDescription(
                d.log_dir, replicas, d.total_bytes, d.usable_bytes, d.is_cordoned
            )
        return directories

    ids = list(brokers)
    return dict(zip(ids, await asyncio.gather(*(ask(broker_id) for broker_id in ids)), strict=True))


async def _send(cluster: Cluster, broker_id: int | None, request: Any, deadline: float, *, or_any: bool = False) -> Any:
    """Send a request to a broker, or to any broker if `broker_id` is None, with retries until the deadline.

    With `or_any`, the request goes to any other broker when `broker_id` is unreachable and no longer in the metadata.
    (A Barnabas broker forwards such a request to the controller; Apache Kafka's brokers reject it.)
    """

    async def attempt() -> Any:
        if broker_id is None:
            return await cluster.send_any(request, deadline=deadline)
        try:
            return await cluster.send(broker_id, request, deadline=deadline)
        except BrokerUnreachableError:
            if not or_any:
                raise
            await cluster.refresh(deadline=deadline)
            if broker_id in cluster.metadata.brokers:
                raise
            return await cluster.send_any(request, deadline=deadline)

    return await cluster.retrying(type(request).__name__, attempt, deadline=deadline)


async def _by_broker(cluster: Cluster, resources: Iterable[ConfigResource], ask: Any) -> dict[ConfigResource, Any]:
    """Group resources by target: the configs of a broker are requested from that broker, all others from any broker."""
    groups: dict[int | None, list[ConfigResource]] = {}
    for resource in dict.fromkeys(resources):
        own = resource.type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER) and resource.name
        if own and not resource.name.isdecimal():
            raise ConfigError(f"The name of a broker is its id, or '' for all brokers, not {resource.name!r:.100}.")
        groups.setdefault(int(resource.name) if own else None, []).append(resource)
    merged: dict[ConfigResource, Any] = {}
    for part in await asyncio.gather(*(ask(broker_id, part) for broker_id, part in groups.items())):
        merged.update(part)
    return merged


def _alter_results(responses: Iterable[Any]) -> dict[ConfigResource, KafkaError | None]:
    results: dict[ConfigResource, KafkaError | None] = {}
    for r in responses:
        resource = ConfigResource(ConfigResourceType(r.resource_type), r.resource_name)
        results[resource] = _resource_error(r.error_code, r.error_message, resource) if r.error_code else None
    return results


def _resource_error(code: int, message: str | None, resource: ConfigResource) -> KafkaError:
    return item_error(code, message, f"Configs of {resource.type.name.lower()} {resource.name!r}")


def _source(number: int) -> ConfigSource:
    return ConfigSource(number) if number in ConfigSource._value2member_map_ else ConfigSource.UNKNOWN


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value,
        _source(config.config_source),
        config.read_only,
        config.is_sensitive,
        tuple(ConfigSynonym(s.name, s.value, _source(s.source)) for s in config.synonyms),
        config.documentation,
        config.config_type,
    )
