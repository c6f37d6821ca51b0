"""What the metadata log makes of a disk that is full, that fails, that loses power, and of bytes that others wrote.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.server.metadata.errors import MetadataError
from barnabas.server.quorum.metadata_log import QuorumConfig, RaftMetadataLog
from barnabas.server.quorum.quorum_state import (
    QuorumState,
    QuorumStateError,
    parse_quorum_state,
    render_quorum_state,
)
from barnabas.server.quorum.raft_log import RaftLog
from barnabas.server.quorum.snapshot_files import (
    FORMATTED_FILE,
    SnapshotDamagedError,
    list_snapshots,
    name_of,
    parse_snapshot,
    render_snapshot,
)
from barnabas.server.quorum.snapshot_store import SnapshotStore
from barnabas.server.quorum.vote_store import VoteStore
from barnabas.server.raft.machine.events import AdvanceStart, Append, StartLogAt, TruncateFrom
from barnabas.server.raft.machine.values import (
    ORIGIN,
    ElectionState,
    KRaftVersionControl,
    LeaderChangeControl,
    LogSummary,
    OffsetAndEpoch,
    RaftBatch,
    RaftEndpoint,
    ReplicaKey,
    VoterNode,
    Voters,
)
from barnabas.server.storage.errors import DiskIoError
from barnabas.testing.sim.disk import MemoryDisk, never
from tests.configs import raft_config
from tests.unit.server.coordination.kit import LoopClock
from tests.unit.server.quorum.kit import (
    CLUSTER,
    DIRECTORY,
    LOG,
    InlineExecutor,
    State,
    disk_of,
    quorum,
    run,
    topics,
)

ME = ReplicaKey(1, disk_of(1))
VOTERS = Voters((VoterNode(ME, (RaftEndpoint("CONTROLLER", "n1", 9093),), 0, 1),))


# ---- a node of its own


def founder() -> QuorumConfig:
    return QuorumConfig(raft_config(), CLUSTER, endpoints=VOTERS.members[0].endpoints)


@contextlib.asynccontextmanager
async def alone(disk: MemoryDisk, options: QuorumConfig | None = None, *, key: ReplicaKey = ME):  # type: ignore[no-untyped-def]
    """The only voter, as a single node runs it."""
    log = RaftMetadataLog(
        disk.mount(),
        DIRECTORY,
        key,
        options or QuorumConfig(raft_config(), CLUSTER),
        clock=LoopClock(),
        rng=random.Random(1),
        executor=InlineExecutor(),
        sender=None,  # type: ignore[arg-type]  # there is nobody to send to
    )
    state = State()
    log.register(state)
    log.open()
    task = asyncio.get_running_loop().create_task(log.run())
    try:
        yield log, state
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        disk.crash()


def test_the_only_voter_leads_at_once_after_every_restart() -> None:
    async def main() -> None:
        disk = MemoryDisk()
        for life in range(1, 4):
            async with alone(disk) as (log, state):
                await log.wait_leader()
                assert asyncio.get_running_loop().time() < 0.1
                assert (log.leader_id, log.leader_epoch) == (1, life)
                assert state.names == [f"t{number}" for number in range(1, life)]
                await log.propose(topics(f"t{life}"))

    run(main)


def test_late_listener_is_notified_of_everything() -> None:
    async def main() -> None:
        async with alone(MemoryDisk()) as (log, state):
            await log.wait_leader()
            await log.propose(topics("a", "b"))
            await log.write_snapshot(state.offset + 1, log.leader_epoch, 5, topics("a", "b"))
            await log.propose(topics("c"))
            late = State()
            log.register(late)
            assert (late.names, late.leaders) == (["a", "b", "c"], [(1, 1)])

    run(main)


def test_full_disk_fails_the_proposal_and_the_controller_recovers_when_space_is_free() -> None:
    async def main() -> None:
        disk = MemoryDisk()
        async with alone(disk) as (log, state):
            await log.wait_leader()
            await log.propose(topics("a"))
            disk.capacity = disk.used
            with pytest.raises(KafkaError) as refused:
                await log.propose(topics("b"))
            assert refused.value.code is ErrorCode.NOT_CONTROLLER
            assert log.leader_id == -1
            await asyncio.sleep(30)  # of virtual time: it tries, and still there is no room
            assert log.leader_id == -1
            disk.capacity = 1 << 40
            await log.wait_leader()
            await log.propose(topics("c"))
            assert state.names == ["a", "c"]
            assert state.leaders[:3] == [(-1, 1), (1, 1), (-1, 1)]
            assert state.leaders[-1] == (1, log.leader_epoch)
        async with alone(disk) as (log, state):
            await log.wait_leader()
            assert state.names == ["a", "c"]

    run(main)


def test_full_disk_of_the_leader_causes_at_most_one_election() -> None:
    async def main() -> None:
        async with quorum(3) as made:
            first = await made.leader()
            await first.now.propose(topics("a"))
            await made.reached("a")
            first.disk.capacity = first.disk.used
            with pytest.raises(KafkaError):
                await first.now.propose(topics("b"))
            second = await made.leader(other_than=first.node_id)
            await second.now.propose(topics("c"))
            first.disk.capacity = 1 << 40
            await made.reached("ac")

    run(main)


def test_disk_failure_ends_the_node_and_the_other_voters_continue() -> None:
    async def main() -> None:
        async with quorum(3) as made:
            first = await made.leader()
            first.disk.fail_syncs = lambda path: path.endswith(".log")
            lost = asyncio.ensure_future(first.now.propose(topics("a")))
            assert first.task is not None
            with pytest.raises(DiskIoError):
                await first.task
            first.disk.fail_syncs = never
            assert first.now.leader_id == -1
            await asyncio.gather(lost, return_exceptions=True)
            first.log = None
            second = await made.leader()
            await second.now.propose(topics("b"))
            assert second.state.names in (["b"], ["a", "b"])  # the followers may have had it in time

    run(main)


# ---- the log


def raft_log(disk: MemoryDisk) -> RaftLog:
    fs = disk.mount()
    fs.mkdir(LOG)
    executor = InlineExecutor()
    return RaftLog(fs, LOG, SnapshotStore(fs, LOG, executor), clock=LoopClock(), executor=executor)


def data(offset: int, epoch: int, *values: bytes) -> Append:
    payload = build_batch([SimpleRecord(None, value, 7) for value in values])
    return Append(RaftBatch(offset, len(values), epoch, payload))


def controls(offset: int, epoch: int, *values: LeaderChangeControl | KRaftVersionControl | Voters) -> Append:
    return Append(RaftBatch(offset, len(values), epoch, b"", values))


def test_synced_batches_survive_a_power_failure_and_the_rest_is_truncated() -> None:
    async def main() -> None:
        for kept in (0, 40, 10_000):  # bytes of the rest that reached the platter by themselves
            disk = MemoryDisk()
            log = raft_log(disk)
            assert log.open() == LogSummary()
            log.apply(controls(0, 1, LeaderChangeControl(1, (ME,), (ME,)), KRaftVersionControl(1), VOTERS))
            log.apply(data(3, 1, b"a", b"b"))
            await log.sync()
            log.apply(data(5, 2, b"c"))
            disk.lose_power(kept)
            found = raft_log(disk).open()
            whole = kept == 10_000
            assert found == LogSummary(
                ORIGIN, 6 if whole else 5, ((1, 0), (2, 5)) if whole else ((1, 0),), (), ((1, 1),), ((2, VOTERS),)
            )

    run(main)


def test_batches_are_read_back_unchanged() -> None:
    async def main() -> None:
        log = raft_log(MemoryDisk())
        log.open()
        log.apply(data(0, 3, b"a", b"b"))
        log.apply(controls(2, 4, LeaderChangeControl(2, (ReplicaKey(2),), (ReplicaKey(2),))))
        first, second = log.read(1, 100_000)
        assert (first.base_offset, first.count, first.epoch, first.controls) == (0, 2, 3, ())
        assert second.controls == (LeaderChangeControl(2, (ReplicaKey(2),), (ReplicaKey(2),)),)
        assert len(log.read(0, 1)) == 1  # one at least
        other = raft_log(MemoryDisk())
        other.open()
        other.apply(Append(first))
        other.apply(Append(second))
        assert [bytes(batch.payload) for batch in other.read(0, 9999)] == [bytes(first.payload), bytes(second.payload)]
        log.apply(TruncateFrom(2))
        assert log.open() == LogSummary(ORIGIN, 2, ((3, 0),))

    run(main)


async def stored(disk: MemoryDisk, snapshot_id: OffsetAndEpoch, *names: str, voters: Voters | None = None) -> None:
    store = SnapshotStore(disk.mount(), LOG, InlineExecutor())
    version = 0 if voters is None else 1
    await store.store(
        snapshot_id, topics(*names), timestamp_ms=1, metadata_version=29, kraft_version=version, voters=voters
    )


def test_the_log_starts_where_its_newest_snapshot_ends() -> None:
    async def main() -> None:
        disk = MemoryDisk()
        log = raft_log(disk)
        log.open()
        for offset in range(10):
            log.apply(data(offset, 1 + offset // 5, b"x"))
        await log.sync()
        await stored(disk, OffsetAndEpoch(1, 4), "a", voters=VOTERS)
        log.apply(AdvanceStart(OffsetAndEpoch(1, 4)))
        expected = LogSummary(
            OffsetAndEpoch(1, 4), 10, ((1, 4), (2, 5)), (OffsetAndEpoch(1, 4),), ((3, 1),), ((3, VOTERS),)
        )
        assert log.open() == expected
        disk.lose_power()
        assert raft_log(disk).open() == expected

    run(main)


def test_the_snapshot_before_the_newest_and_the_log_from_there_on_are_kept() -> None:
    async def main() -> None:
        disk = MemoryDisk()
        log = raft_log(disk)
        log.open()
        ends = [OffsetAndEpoch(1, 4), OffsetAndEpoch(1, 8), OffsetAndEpoch(1, 12)]
        for end in ends:
            for offset in range(end.offset - 4, end.offset):
                log.apply(data(offset, 1, b"x"))
            await log.sync()
            await stored(disk, end, "a")
            log.apply(AdvanceStart(end))
        fs = disk.mount()
        assert list_snapshots(fs, LOG) == ends[1:]
        assert [name for name in fs.listdir(LOG) if name.endswith(".log")] == [
             "00000000000000000008.log", "00000000000000000012.log",
        ]  # fmt: skip
        disk.put(f"{LOG}/{name_of(ends[2])}", b"damaged" * 20)
        assert raft_log(disk).open() == LogSummary(ends[1], 12, ((1, 8),), (ends[1],))

    run(main)


@pytest.mark.parametrize("log_ends_at", [3, 20])
def test_fetched_snapshot_replaces_the_log_despite_a_power_failure(log_ends_at: int) -> None:
    async def main() -> None:
        disk = MemoryDisk()
        log = raft_log(disk)
        log.open()
        for offset in range(log_ends_at):
            log.apply(data(offset, 1, b"x"))
        await log.sync()
        newest = OffsetAndEpoch(3, 9)
        await stored(disk, newest, "a")
        cut = disk.clone()
        cut.lose_power()
        start = newest if log_ends_at < newest.offset else ORIGIN  # a longer log contradicts it, until it is dropped
        assert raft_log(cut).open().start == start
        log.apply(StartLogAt(newest))
        assert log.open() == LogSummary(newest, 9, (), (newest,))
        log.apply(data(9, 3, b"y"))
        await log.sync()
        disk.lose_power()
        assert raft_log(disk).open() == LogSummary(newest, 10, ((3, 9),), (newest,))

    run(main)


def test_log_without_its_start_and_snapshot_raises_metadata_error() -> None:
    async def main() -> None:
        disk = MemoryDisk()
        log = raft_log(disk)
        log.open()
        log.apply(StartLogAt(OffsetAndEpoch(1, 5)))
        log.apply(data(5, 1, b"x"))
        with pytest.raises(MetadataError, match="starts at offset 5, but there is no complete snapshot"):
            log.open()

    run(main)


# ---- votes


def votes(disk: MemoryDisk, version: int = 1) -> VoteStore:
    fs = disk.mount()
    fs.mkdir(LOG)
    return VoteStore(fs, LOG, InlineExecutor(), voters=lambda: (version, (1, 2, 3)))


@pytest.mark.parametrize("version", [0, 1])
def test_saved_vote_survives_a_power_failure(version: int) -> None:
    async def main() -> None:
        disk = MemoryDisk()
        store = votes(disk, version)
        assert store.load() == ElectionState()
        voted = ReplicaKey(2, disk_of(2)) if version else ReplicaKey(2)
        for election in (ElectionState(4, -1, voted), ElectionState(4, 2, voted), ElectionState(5, 3)):
            await store.save(election)
            disk.lose_power()
            store = votes(disk, version)
            assert store.load() == election
        state = store.state()
        assert state is not None and (state.version, state.voters) == (version, () if version else (1, 2, 3))

    run(main)


def test_torn_write_of_a_vote_keeps_the_previous_vote() -> None:
    async def main() -> None:
        disk = MemoryDisk()
        store = votes(disk)
        await store.save(ElectionState(4, -1, ReplicaKey(2, disk_of(2))))
        disk.fail_syncs = lambda path: path.endswith(".tmp")
        with pytest.raises(DiskIoError):
            await store.save(ElectionState(9, 1))
        disk.fail_syncs = never
        disk.lose_power(3)
        assert votes(disk).load() == ElectionState(4, -1, ReplicaKey(2, disk_of(2)))

    run(main)


def test_unreadable_quorum_state_raises_an_error() -> None:
    disk = MemoryDisk()
    store = votes(disk)
    disk.put(f"{LOG}/quorum-state", b'{"leaderId":1,')
    with pytest.raises(QuorumStateError, match="damaged"):
        store.load()


# ---- snapshots


def test_fetched_snapshot_is_checked_before_it_is_renamed() -> None:
    async def main() -> None:
        disk = MemoryDisk()
        fs = disk.mount()
        fs.mkdir(LOG)
        fs.sync_dir(DIRECTORY)
        store = SnapshotStore(fs, LOG, InlineExecutor())
        newest = OffsetAndEpoch(2, 7)
        pieces = render_snapshot(
            topics("a", "b"), epoch=2, timestamp_ms=9, metadata_version=29, kraft_version=1, voters=VOTERS
        )
        whole = b"".join(bytes(piece) for piece in pieces)
        store.write(newest, 0, b"from another leader")
        for start in range(0, len(whole), 100):
            store.write(newest, start, whole[start : start + 100])
        assert store.read(newest, 0, 10) is None
        assert await store.finish(newest) == (1, VOTERS)
        disk.lose_power()
        store = SnapshotStore(disk.mount(), LOG, InlineExecutor())
        assert store.read(newest, 20, 30) == (len(whole), whole[20:50])
        loaded = store.load(newest)
        assert (loaded.end_offset, loaded.epoch, loaded.timestamp_ms) == (7, 2, 9)
        assert loaded.records == topics("a", "b")
        cut = OffsetAndEpoch(2, 8)
        store.write(cut, 0, whole[:-20])
        with pytest.raises(SnapshotDamagedError, match="no footer"):
            await store.finish(cut)
        flipped = bytearray(whole)
        flipped[len(whole) // 2] ^= 1
        store.write(cut, 0, flipped)
        with pytest.raises(SnapshotDamagedError, match="CRC"):
            await store.finish(cut)
        assert list_snapshots(disk.mount(), LOG) == [newest]

    run(main)


def test_snapshot_on_a_full_disk_leaves_no_file() -> None:
    async def main() -> None:
        disk = MemoryDisk()
        async with alone(disk) as (log, state):
            await log.wait_leader()
            await log.propose(topics("a"))
            disk.capacity = disk.used + 50
            with pytest.raises(KafkaError):
                await log.write_snapshot(state.offset + 1, log.leader_epoch, 5, topics("a"))
            disk.capacity = 1 << 40
            assert not [path for path in disk.paths() if "checkpoint" in path and "leader-epoch" not in path]
            await log.propose(topics("b"))

    run(main)


# ---- directories that others made


def test_a_directory_of_a_quorum_of_several_is_not_opened_alone() -> None:
    async def main() -> None:
        disk = MemoryDisk()
        votes(disk)
        disk.put(f"{LOG}/quorum-state", render_quorum_state(QuorumState(2, 5, -1, (1, 2, 3))).encode())
        with pytest.raises(MetadataError, match=r"quorum of the nodes \[1, 2, 3\]"):
            async with alone(disk):
                pass

    run(main)


def test_a_directory_of_kraft_version_0_stays_one() -> None:
    async def main() -> None:
        disk = MemoryDisk()
        votes(disk)
        disk.put(f"{LOG}/quorum-state", render_quorum_state(QuorumState(1, 5, -1, (1,))).encode())
        async with alone(disk) as (log, _):
            await log.wait_leader()
            await log.propose(topics("a"))
            assert (log.leader_epoch, list(log.voter_set.ids)) == (6, [1])
        state = parse_quorum_state(bytes(disk.data(f"{LOG}/quorum-state")).decode())
        assert (state.version, state.voters, state.leader_epoch) == (0, (1,), 6)
        assert raft_log(disk).open().voters == ()

    run(main)


def test_log_of_apache_kafka_is_continued_by_its_voter() -> None:
    """The log of a node that Kafka 4.3.1 formatted with --standalone (kraft.version 1)."""
    kafka = Path(__file__).parents[3] / "golden" / "metadata" / "kafka_4_3_1_cluster_metadata.log"
    voter = VoterNode(
        ReplicaKey(1, UUID("d3679352-da68-4814-b87e-624188973973")), (RaftEndpoint("CONTROLLER", "localhost", 19093),)
    )

    async def main() -> None:
        disk = MemoryDisk()
        store = votes(disk)
        disk.put(f"{LOG}/00000000000000000000.log", kafka.read_bytes())
        await store.save(ElectionState(1, 1, voter.key))
        log = raft_log(disk)
        assert log.open() == LogSummary(
            ORIGIN, 38, ((1, 0),), kraft_versions=((1, 1),), voters=((2, Voters((voter,))),)
        )
        async with alone(disk, key=voter.key) as (log, state):
            await log.wait_leader()
            assert (log.leader_epoch, state.offset, log.voter_set) == (2, 37, Voters((voter,)))
            await log.propose(topics("a"))
        async with alone(disk) as (log, _):  # the same id on another disk is another replica: it must not lead
            await asyncio.sleep(10)
            assert log.leader_id == -1

    run(main)


def test_directory_formatted_for_dynamic_voters_writes_the_voters_into_the_log() -> None:
    async def main() -> None:
        disk = MemoryDisk()
        votes(disk)
        pieces = render_snapshot((), epoch=0, timestamp_ms=0, metadata_version=29, kraft_version=1, voters=VOTERS)
        disk.put(f"{LOG}/{FORMATTED_FILE}", b"".join(bytes(piece) for piece in pieces))
        async with alone(disk, QuorumConfig(raft_config(), CLUSTER, may_found=False)) as (log, _):
            await log.wait_leader()
            assert log.voter_set == VOTERS
        assert raft_log(disk).open().voters == ((-1, VOTERS), (2, VOTERS))

    run(main)


def test_a_new_node_alone_founds_a_quorum_that_others_may_join() -> None:
    async def main() -> None:
        disk = MemoryDisk()
        async with alone(disk, founder()) as (log, _):
            await log.wait_leader()
            assert log.voter_set == VOTERS
        found = raft_log(disk).open()
        assert (found.kraft_versions, found.voters) == (((1, 1),), ((2, VOTERS),))

    run(main)


def test_snapshot_contains_voters_and_kraft_version() -> None:
    async def main() -> None:
        disk = MemoryDisk()
        async with alone(disk, founder()) as (
            log,
            state,
        ):
            await log.wait_leader()
            await log.propose(topics("a"))
            await log.write_snapshot(state.offset + 1, log.leader_epoch, 5, topics("a"))
        (snapshot_id,) = list_snapshots(disk.mount(), LOG)
        contents = parse_snapshot(bytes(disk.data(f"{LOG}/{name_of(snapshot_id)}")), "it")
        assert (contents.kraft_version, contents.voters, contents.records) == (1, VOTERS, topics("a"))
        async with alone(disk, founder()) as (
            log,
            state,
        ):
            await log.wait_leader()
            assert (log.voter_set, state.snapshots, state.names) == (VOTERS, [4], ["a"])

    run(main)
