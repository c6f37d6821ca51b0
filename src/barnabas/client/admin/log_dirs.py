"""Shell: the log directories of replicas: describe them, and move replicas between directories (KIP-113)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping

from barnabas.client.admin.configs import describe_log_dirs
from barnabas.client.admin.requests import item_error
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.values import ReplicaLogDirs, TopicPartitionReplica
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)

Outcomes = dict[TopicPartitionReplica, KafkaError | None]
Ask = Callable[[int, list[TopicPartitionReplica]], Awaitable[Outcomes]]


async def alter_replica_log_dirs(
    cluster: Cluster, moves: Mapping[TopicPartitionReplica, str], *, deadline: float
) -> Outcomes:
    async def ask(broker_id: int, part: list[TopicPartitionReplica]) -> Outcomes:
        wanted: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for replica in part:
            wanted[moves[replica]][replica.topic].append(replica.partition)
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[AlterReplicaLogDirTopic(name=name, partitions=ids) for name, ids in topics.items()],
                )
                for path, topics in wanted.items()
            ]
        )

        async def attempt() -> AlterReplicaLogDirsResponse:
            answer: AlterReplicaLogDirsResponse = await cluster.send(broker_id, request, deadline=deadline)
            return answer

        response: AlterReplicaLogDirsResponse = await cluster.retrying(
            "AlterReplicaLogDirs", attempt, deadline=deadline
        )
        outcomes: Outcomes = {}
        for topic in response.results:
            for result in topic.partitions:
                replica = TopicPartitionReplica(topic.topic_name, result.partition_index, broker_id)
                code = result.error_code
                outcomes[replica] = item_error(code, None, f"Moving replica {replica}") if code else None
        return outcomes

    return await _by_broker(moves, ask)


async def describe_replica_log_dirs(
    cluster: Cluster, replicas: Iterable[TopicPartitionReplica], *, deadline: float
) -> dict[TopicPartitionReplica, ReplicaLogDirs]:
    wanted = list(dict.fromkeys(replicas))
    brokers = sorted({replica.broker_id for replica in wanted})
    found = await describe_log_dirs(cluster, brokers, deadline=deadline)
    answers = {}
    for replica in wanted:
        name = TopicPartition(replica.topic, replica.partition)
        current: str | None = None
        future: str | None = None
        current_lag = future_lag = -1
        for path, directory in found[replica.broker_id].items():
            size = None if isinstance(directory, KafkaError) else directory.replicas.get(name)
            if size is not None and size.is_future:
                future, future_lag = path, size.offset_lag
            elif size is not None:
                current, current_lag = path, size.offset_lag
        answers[replica] = ReplicaLogDirs(current, current_lag, future, future_lag)
    return answers


async def _by_broker(moves: Mapping[TopicPartitionReplica, str], ask: Ask) -> Outcomes:
    groups: dict[int, list[TopicPartitionReplica]] = defaultdict(list)
    for replica in moves:
        groups[replica.broker_id].append(replica)
    outcomes: Outcomes = {}
    for part in await asyncio.gather(*(ask(broker_id, part) for broker_id, part in groups.items())):
        outcomes.update(part)
    return outcomes
