"""A cluster in memory with the admin client's interface, for tests of the commands that move replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from barnabas.cli.cluster import moves as cluster_moves
from barnabas.client.admin.reassignments import Reassignment
from barnabas.client.cluster.metadata import BrokerAddress, TopicDescription, TopicPartitionInfo
from barnabas.client.errors import BrokerUnreachableError
from barnabas.client.values import (
    AlterOp,
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    TopicListing,
)
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_TOPIC_ID, TopicPartition


class MovingCluster:
    """Reassignments begin at once, and end with `finish` and `finish_all`. Reassignments of the `refused` partitions
    are rejected.
    """

    def __init__(self, brokers: Iterable[int], replicas: Mapping[str, Sequence[Sequence[int]]]) -> None:
        self.up = set(brokers)
        self.registered = set(brokers)
        self.replicas = {
            TopicPartition(topic, index): tuple(each)
            for topic, rows in replicas.items()
            for index, each in enumerate(rows)
        }
        self.under_way: dict[TopicPartition, Reassignment] = {}
        self.refused: set[TopicPartition] = set()
        self.configs: dict[tuple[str, str], str] = {}
        """("broker 1" or "topic t", config name) -> value, for each config that is set."""
        self.on_list: Callable[[], None] = lambda: None
        """Called before reassignments are listed."""

    def use(self, monkeypatch: pytest.MonkeyPatch, module: Any = cluster_moves) -> None:
        """Run a command of `barnabas cluster` against this cluster."""

        def run_admin(_: str, command: Callable[[Any], Awaitable[Any]], settings: object = None) -> Any:
            return asyncio.run(command(self))  # type: ignore[arg-type]  # a coroutine in truth

        monkeypatch.setattr(module, "run_admin", run_admin)

    def finish_all(self) -> None:
        self.finish(*self.under_way)

    def finish(self, *partitions: TopicPartition) -> None:
        for tp in partitions:
            self.replicas[tp] = self.under_way.pop(tp).target

    # -- the admin client ----------------------------------------------------------------------------------------

    async def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("c", 1, tuple(BrokerAddress(b, "h", 1) for b in sorted(self.up)))

    async def list_topics(self, *, include_internal: bool = False) -> list[TopicListing]:
        return [TopicListing(name, NO_TOPIC_ID, False, 1) for name in sorted({tp.topic for tp in self.replicas})]

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        return {
            name: TopicDescription(
                name,
                partitions=tuple(
                    TopicPartitionInfo(name, tp.partition, 1, 0, replicas)
                    for tp, replicas in sorted(self.replicas.items())
                    if tp.topic == name
                ),
            )
            for name in names
        }

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        self.on_list()
        named = None if partitions is None else set(partitions)
        return {tp: move for tp, move in self.under_way.items() if named is None or tp in named}

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, KafkaError | None]:
        results: dict[TopicPartition, KafkaError | None] = {}
        for tp, target in targets.items():
            results[tp] = KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"no {tp}") if tp in self.refused else None
            if tp not in self.refused:
                self._move(tp, target)
        return results

    def _move(self, tp: TopicPartition, target: Sequence[int] | None) -> None:
        move = self.under_way.pop(tp, Reassignment(self.replicas[tp], (), ()))
        original = tuple(broker for broker in move.replicas if broker not in move.adding)
        wanted = original if target is None else tuple(target)
        adding = tuple(broker for broker in wanted if broker not in original)
        removing = tuple(broker for broker in original if broker not in wanted)
        self.replicas[tp] = (*wanted, *removing)
        if adding or removing:
            self.under_way[tp] = Reassignment(self.replicas[tp], adding, removing)

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        timeout_ms: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
        found: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
        for resource in resources:
            if resource.type is ConfigResourceType.BROKER and int(resource.name) not in self.up:
                raise BrokerUnreachableError(f"Broker {resource.name}, which alone could say, is down.")
            owner = f"{resource.type.name.lower()} {resource.name}"
            own = ConfigSource.TOPIC if resource.type is ConfigResourceType.TOPIC else ConfigSource.DYNAMIC_BROKER
            found[resource] = {
                name: ConfigEntry(name, self.configs.get((owner, name), ""), own)
                if (owner, name) in self.configs
                else ConfigEntry(name, "", ConfigSource.DEFAULT)
                for name in names or ()
            }
        return found

    async def incremental_alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[ConfigChange]]
    ) -> dict[ConfigResource, KafkaError | None]:
        results: dict[ConfigResource, KafkaError | None] = {}
        for resource, settings in changes.items():
            if resource.type is ConfigResourceType.BROKER and int(resource.name) not in self.registered:
                results[resource] = KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker {resource.name}")
                continue
            results[resource] = None
            for change in settings:
                key = (f"{resource.type.name.lower()} {resource.name}", change.name)
                if change.op is AlterOp.DELETE:
                    self.configs.pop(key, None)
                else:
                    self.configs[key] = change.value or ""
        return results
