"""The brokers, leaders and offline replicas that the clients of one listener see."""

from __future__ import annotations

from uuid import UUID

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.metadata import MetadataResponsePartition
from barnabas.server.broker.metadata_cache import DESCRIBED_MAX, BrokerMetadataCache, Descriptions, NodeAddress
from barnabas.server.metadata.image.cluster import ClusterImage, PartitionImage, TopicImage
from barnabas.server.metadata.image.delta import replayed
from barnabas.server.metadata.records.nodes import BrokerEndpoint, RegisterBrokerRecord

DISK, LOST = UUID(int=11), UUID(int=12)


def cache() -> BrokerMetadataCache:
    """Brokers 1 and 2 have both listeners, 3 has listener IN only, 4 is fenced."""

    def broker(number: int, *names: str, fenced: bool = False) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=number,
            broker_epoch=number,
            end_points=[BrokerEndpoint(name=name, host=f"{name.lower()}{number}", port=9092) for name in names],
            rack=f"r{number}",
            fenced=fenced,
            log_dirs=[DISK],
        )

    found = BrokerMetadataCache()
    found.image = replayed(
        ClusterImage(cluster_id="c"),
        [broker(1, "IN", "OUT"), broker(2, "IN", "OUT"), broker(3, "IN"), broker(4, "IN", "OUT", fenced=True)],
    )
    return found


def partition(leader: int, *directories: UUID) -> PartitionImage:
    return PartitionImage((1, 2, 3, 4), (1, 2, 3), leader, 0, 0, directories=directories)


def test_addresses_are_those_of_the_listener() -> None:
    assert cache().addresses("OUT") == [NodeAddress(1, "out1", 9092, "r1"), NodeAddress(2, "out2", 9092, "r2")]
    assert [address.node_id for address in cache().addresses("IN")] == [1, 2, 3]


def test_leader_is_hidden_from_a_listener_without_connection_to_it() -> None:
    found = [
        (cache().leader(partition(leader), listener), cache().leader_problem(partition(leader), listener))
        for leader, listener in ((1, "OUT"), (3, "OUT"), (3, "IN"), (4, "IN"), (-1, "IN"))
    ]
    assert found == [
        (1, ErrorCode.NONE),
        (-1, ErrorCode.LISTENER_NOT_FOUND),
        (3, ErrorCode.NONE),
        (-1, ErrorCode.LEADER_NOT_AVAILABLE),
        (-1, ErrorCode.LEADER_NOT_AVAILABLE),
    ]


def test_offline_replicas_are_fenced_or_without_listener_or_on_a_failed_disk() -> None:
    assert cache().offline_replicas(partition(1), "IN") == [4]
    assert cache().offline_replicas(partition(1), "OUT") == [3, 4]
    assert cache().offline_replicas(partition(1, DISK, LOST, DISK, DISK), "IN") == [2, 4]


def test_descriptions_are_those_of_the_image_and_have_a_limit() -> None:
    def topic(number: int, count: int) -> TopicImage:
        return TopicImage(f"t{number}", UUID(int=number), tuple(partition(1) for _ in range(count)))

    descriptions = Descriptions()
    first, changed, large = topic(1, 1), topic(1, 1), topic(2, 1)
    described = [MetadataResponsePartition()]
    descriptions.keep(first, "IN", described)
    assert descriptions.get(first, "IN") is described
    assert descriptions.get(first, "OUT") is None
    assert descriptions.get(changed, "IN") is None, "another image of the topic"
    descriptions.keep(large, "IN", [MetadataResponsePartition()] * DESCRIBED_MAX)
    assert descriptions.get(first, "IN") is None, "all topics made room"
    assert descriptions.get(large, "IN") is not None
    descriptions.keep(first, "IN", [MetadataResponsePartition()] * (DESCRIBED_MAX + 1))
    assert descriptions.get(first, "IN") is None, "there will never be room"
