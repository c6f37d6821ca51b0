"""Several metadata logs as one quorum, over the codec and the handlers. Sleeps take virtual time."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from tests.unit.server.quorum.kit import Host, disk_of, quorum, run, topics


async def propose(host: Host, *names: str) -> int:
    return await host.now.propose(topics(*names))


def test_three_voters_elect_a_leader_and_commit_its_proposals() -> None:
    async def main() -> None:
        async with quorum(3) as made:
            leader = await made.leader()
            await propose(leader, "a", "b")
            await propose(leader, "c")
            await made.reached("abc")
            for host in made.hosts.values():
                assert host.now.leader_id == leader.node_id
                assert host.now.leader_endpoint() == (f"n{leader.node_id}", 9093)

    run(main)


def test_only_the_leader_accepts_proposals() -> None:
    async def main() -> None:
        async with quorum(3) as made:
            leader = await made.leader()
            await propose(leader, "a")
            follower = next(host for host in made.hosts.values() if host is not leader)
            with pytest.raises(KafkaError) as refused:
                await propose(follower, "b")
            assert refused.value.code is ErrorCode.NOT_CONTROLLER

    run(main)


def test_killed_leader_is_replaced_and_rejoins() -> None:
    async def main() -> None:
        async with quorum(3) as made:
            first = await made.leader()
            await propose(first, "a")
            await made.reached("a")
            await made.kill(first.node_id, power=True)
            second = await made.leader()
            await propose(second, "b")
            back = made.start(first.node_id)
            await made.reached("ab")
            assert back.now.leader_id == second.node_id

    run(main)


def test_a_leader_that_is_dead_is_not_responsive_although_its_epoch_goes_on() -> None:
    async def main() -> None:
        async with quorum(3) as made:
            first = await made.leader()
            await propose(first, "a")
            await made.reached("a")
            left, other = [host for host in made.hosts.values() if host is not first]
            assert left.now.responsive_leader_id == first.now.responsive_leader_id == first.node_id
            await made.kill(first.node_id, power=True)
            await made.kill(other.node_id, power=True)
            for _ in range(20):
                await asyncio.sleep(1)
                silent = left.now.responsive_leader_id == -1
            assert silent
            assert left.now.state_name == "prospective"

    run(main)


def test_diverged_follower_is_truncated() -> None:
    async def main() -> None:
        async with quorum(3) as made:
            first = await made.leader()
            others = [node_id for node_id in made.hosts if node_id != first.node_id]
            await propose(first, "a")
            await made.reached("a")
            made.cut = {frozenset((first.node_id, other)) for other in others}
            lost = asyncio.ensure_future(propose(first, "never", "committed"))
            await asyncio.sleep(0.1)
            assert first.now.log_end_offset == 4
            second = await made.leader(other_than=first.node_id)
            await propose(second, "b")
            made.cut = set()
            await made.reached("ab")
            assert first.now.log_end_offset == second.now.log_end_offset == 4
            with pytest.raises(KafkaError) as refused:
                await lost
            assert refused.value.code is ErrorCode.NOT_CONTROLLER

    run(main)


def test_a_follower_far_behind_loads_the_snapshot_of_its_leader() -> None:
    async def main() -> None:
        async with quorum(3) as made:
            leader = await made.leader()
            await propose(leader, "a")
            await made.reached("a")
            late = next(node_id for node_id in made.hosts if node_id != leader.node_id)
            await made.kill(late)
            names = [f"t{number}" for number in range(3000)]
            for start in range(0, 3000, 500):
                await propose(leader, *names[start : start + 500])
            everything = ["a", *names]
            state = leader.state
            await leader.now.write_snapshot(state.offset + 1, leader.now.leader_epoch, 7, topics(*everything))
            await propose(leader, "after")
            host = made.start(late, controller_quorum_fetch_snapshot_max_bytes=10_000)
            await made.reached([*everything, "after"])
            assert host.state.snapshots == [state.offset]  # the offset before "after"
            assert ("FetchSnapshotRequest" in {name for _, _, name in made.sent}) is True
            await made.kill(late, power=True)
            host = made.start(late)
            await made.reached([*everything, "after"])
            assert host.state.snapshots == [state.offset]

    run(main)


def test_resigning_leader_is_replaced_at_once() -> None:
    async def main() -> None:
        async with quorum(3) as made:
            first = await made.leader()
            await propose(first, "a")
            await made.reached("a")
            before = asyncio.get_running_loop().time()
            await first.now.resign()
            assert first.now.leader_id not in (-1, first.node_id)
            assert asyncio.get_running_loop().time() - before < 1.0

    run(main)


def test_committed_records_survive_a_power_failure_of_all_voters() -> None:
    async def main() -> None:
        async with quorum(3) as made:
            leader = await made.leader()
            await propose(leader, "a", "b", "c")
            for node_id in made.hosts:
                await made.kill(node_id, power=True)
            for node_id in made.hosts:
                made.start(node_id)
            leader = await made.leader()
            await propose(leader, "d")
            await made.reached("abcd")

    run(main)


@pytest.mark.parametrize("which", ["lowest", "highest"])
def test_every_version_of_the_messages_carries_a_quorum(which: str) -> None:
    """A node of an older version in the quorum: Fetch 15 has no disks, Vote 0 neither, BeginQuorumEpoch 0 is not even
    flexible."""

    def version(key: int) -> int:
        api = APIS[ApiKey(key)]
        lowest = max(api.min_version, 15 if key == ApiKey.FETCH else 0)
        return lowest if which == "lowest" else api.max_version

    async def main() -> None:
        async with quorum(3, version=version) as made:
            first = await made.leader()
            await propose(first, "a")
            await made.kill(first.node_id)
            second = await made.leader()
            await propose(second, "b")
            made.start(first.node_id)
            await made.reached("ab")

    run(main)


def test_the_leader_describes_the_quorum() -> None:
    async def main() -> None:
        async with quorum(3) as made:
            leader = await made.leader()
            await propose(leader, "a")
            await made.reached("a")
            request = DescribeQuorumRequest(
                topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
            )
            answer = await made.deliver(9, f"n{leader.node_id}", request)
            partition = answer.topics[0].partitions[0]
            end = leader.now.log_end_offset
            assert (partition.leader_id, partition.high_watermark) == (leader.node_id, end)
            assert [(voter.replica_id, voter.log_end_offset) for voter in partition.current_voters] == [
                (1, end), (2, end), (3, end)
            ]  # fmt: skip
            assert {voter.last_caught_up_timestamp > 1_000_000 for voter in partition.current_voters} == {True}
            assert [(node.node_id, node.listeners[0].host) for node in answer.nodes] == [
                (1, "n1"),
                (2, "n2"),
                (3, "n3"),
            ]
            follower = next(host for host in made.hosts.values() if host is not leader)
            refused = await made.deliver(9, f"n{follower.node_id}", request)
            assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(main)


def test_a_new_quorum_grows_by_auto_join_and_shrinks_by_removal() -> None:
    """KIP-853: one node founds it with kraft.version 1, the others find it through the bootstrap servers."""
    from barnabas.protocol.wire.messages.remove_raft_voter import RemoveRaftVoterRequest

    async def main() -> None:
        async with quorum(3, static=False, started=[1]) as made:
            leader = await made.leader()
            await propose(leader, "a")
            assert list(leader.now.voter_set.ids) == [1]
            made.start(2)
            made.start(3)
            async with asyncio.timeout(60):
                while any(list(host.now.voter_set.ids) != [1, 2, 3] for host in made.hosts.values()):
                    await asyncio.sleep(0.1)
            await propose(leader, "b")
            await made.reached("ab")
            assert [voter.key.directory_id for voter in leader.now.voter_set.members] == [disk_of(n) for n in (1, 2, 3)]
            await made.kill(3)
            request = RemoveRaftVoterRequest(cluster_id=None, voter_id=3, voter_directory_id=disk_of(3))
            answer = await made.deliver(9, "n1", request)
            assert (answer.error_code, answer.error_message) == (0, None)
            assert list(leader.now.voter_set.ids) == [1, 2]
            await made.kill(1, power=True)
            await made.kill(2, power=True)
            for node_id in (2, 1):
                made.start(node_id)
            leader = await made.leader()
            await propose(leader, "c")
            await made.reached("abc")
            assert list(leader.now.voter_set.ids) == [1, 2]

    run(main)


def test_requests_of_another_cluster_and_about_other_topics_are_refused() -> None:
    from barnabas.protocol.wire.messages.fetch_snapshot import (
        FetchSnapshotRequest,
        PartitionSnapshot,
        SnapshotId,
        TopicSnapshot,
    )
    from barnabas.server.broker.quorum.votes import vote_request
    from barnabas.server.raft.machine.messages import VoteRequest
    from barnabas.server.raft.machine.values import OffsetAndEpoch, ReplicaKey

    async def main() -> None:
        async with quorum(1) as made:
            host = await made.leader()
            epoch = host.now.leader_epoch
            ask = VoteRequest(epoch + 1, ReplicaKey(7), ReplicaKey(1), OffsetAndEpoch(9, 9))
            foreign = await made.deliver(9, "n1", vote_request(ask, "another"))
            assert foreign.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
            elsewhere = vote_request(ask, "a-cluster")
            elsewhere.topics[0].topic_name = "mine"
            assert (await made.deliver(9, "n1", elsewhere)).error_code == ErrorCode.INVALID_REQUEST
            nothing = vote_request(ask, "a-cluster")
            nothing.topics = []
            assert (await made.deliver(9, "n1", nothing)).error_code == ErrorCode.INVALID_REQUEST
            piece = PartitionSnapshot(
                partition=0, current_leader_epoch=epoch, snapshot_id=SnapshotId(end_offset=3, epoch=1), position=0
            )
            unknown = FetchSnapshotRequest(topics=[TopicSnapshot(name="mine", partitions=[piece])])
            answer = await made.deliver(9, "n1", unknown)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert host.now.leader_epoch == epoch

    run(main)
