"""Shell: the quorum of controllers: its voters and their offsets, adding and removing voters (KIP-595, KIP-853)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from barnabas.client.admin.requests import item_error
from barnabas.client.cluster.cluster import Cluster
from barnabas.core.ids import METADATA_TOPIC
from barnabas.protocol.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from barnabas.protocol.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    PartitionDataResponse,
    TopicData,
)
from barnabas.protocol.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from barnabas.protocol.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """One replica of the metadata log; times are ms since 1970, -1 if the leader does not know them."""

    node_id: int
    directory_id: UUID
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The quorum, according to its leader."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]

    def lag(self, replica: QuorumReplica) -> int | None:
        """The number of records that the replica lacks; None if it is unknown: the replica has not fetched yet."""
        end = max((voter.log_end_offset for voter in self.voters if voter.node_id == self.leader_id), default=-1)
        return None if end < 0 or replica.log_end_offset < 0 else max(end - replica.log_end_offset, 0)


async def describe_quorum(cluster: Cluster, *, deadline: float) -> QuorumDescription:
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])]
    )

    async def attempt() -> PartitionDataResponse:
        response: DescribeQuorumResponse = await cluster.ask_any(request, deadline=deadline)
        if response.error_code:
            raise item_error(response.error_code, response.error_message, "Describing the quorum")
        quorum = response.topics[0].partitions[0]
        if quorum.error_code:
            raise item_error(quorum.error_code, quorum.error_message, "Describing the quorum")
        return quorum

    found: PartitionDataResponse = await cluster.retrying("Describing the quorum", attempt, deadline=deadline)
    voters, observers = (
        tuple(
            QuorumReplica(
                r.replica_id, r.replica_directory_id, r.log_end_offset, r.last_fetch_timestamp,
                r.last_caught_up_timestamp,
            )
            for r in sorted(replicas, key=lambda r: r.replica_id)
        )
        for replicas in (found.current_voters, found.observers)
    )  # fmt: skip
    return QuorumDescription(found.leader_id, found.leader_epoch, found.high_watermark, voters, observers)


async def add_voter(
    cluster: Cluster, node_id: int, directory_id: UUID, listeners: Sequence[tuple[str, str, int]], *, deadline: float
) -> None:
    """Make an observer a voter; `listeners` are the (name, host, port) of its listeners.

    Raises KafkaError with the error message of the quorum's leader.
    """
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=max(int((deadline - cluster.now()) * 1000), 1),
        voter_id=node_id,
        voter_directory_id=directory_id,
        listeners=[Listener(name=name, host=host, port=port) for name, host, port in listeners],
    )
    answer: AddRaftVoterResponse = await cluster.send_controller(request, deadline=deadline)
    if answer.error_code:
        raise item_error(answer.error_code, answer.error_message, f"Adding voter {node_id}")


async def remove_voter(cluster: Cluster, node_id: int, directory_id: UUID, *, deadline: float) -> None:
    """Remove a voter from the quorum. Raises KafkaError with the error message of the quorum's leader."""
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=directory_id)
    answer: RemoveRaftVoterResponse = await cluster.send_controller(request, deadline=deadline)
    if answer.error_code:
        raise item_error(answer.error_code, answer.error_message, f"Removing voter {node_id}")


async def unregister_broker(cluster: Cluster, broker_id: int, *, deadline: float) -> None:
    """Remove the registration of a broker that will not come back. Raises KafkaError."""
    answer: UnregisterBrokerResponse = await cluster.send_controller(
        UnregisterBrokerRequest(broker_id=broker_id), deadline=deadline
    )
    if answer.error_code:
        raise item_error(answer.error_code, answer.error_message, f"Unregistering broker {broker_id}")
