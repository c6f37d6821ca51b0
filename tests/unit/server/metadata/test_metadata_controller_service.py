"""The controller as a service: its terms, the sessions of brokers, orderly shutdown. Sleeps take virtual time."""

from __future__ import annotations

import asyncio
from functools import partial
from uuid import UUID

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatResponse
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from barnabas.server.metadata import driver, session_keeper
from barnabas.server.metadata.controller import brokers
from barnabas.server.metadata.controller.partitions import decide_move_away
from barnabas.server.metadata.features import DEFAULT_LEVELS, bootstrap_records
from barnabas.server.metadata.records.other import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)
from barnabas.server.metadata.records.topics import PartitionChangeRecord, TopicRecord
from tests.unit.server.metadata.controller_house import TIMEOUT_S, House, play, refused


def test_an_empty_log_gets_the_first_records_and_requests_wait_for_them() -> None:
    async def scenario(house: House) -> None:
        assert await refused(house.register(1)) is ErrorCode.NOT_CONTROLLER
        house.log.elect(1)
        active = [house.service.active]
        assert await house.register(1) == ErrorCode.NONE
        assert [*active, house.service.active] == [False, True]
        minimum = ConfigRecord(resource_type=4, name="min.insync.replicas", value="1")  # as ELR wants it
        assert house.log.batches[:2] == [(NoOpRecord(),), (*bootstrap_records(), minimum)]
        assert dict(house.image.features.levels) == dict(DEFAULT_LEVELS)

    play(scenario)


def test_a_log_that_is_not_empty_is_not_founded_again() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(2)
        house.log.append(bootstrap_records())
        house.log.elect(1)
        await house.brokers(5)
        house.log.elect(3)
        house.log.elect(1)
        await house.beat(5)
        levels = [record for batch in house.log.batches for record in batch if isinstance(record, FeatureLevelRecord)]
        assert levels == bootstrap_records()

    play(scenario)


def test_what_the_leader_before_wrote_and_did_not_commit_is_seen_before_the_log_is_taken_for_empty() -> None:
    async def scenario(house: House) -> None:
        house.log.held = True
        house.log.elect(1)
        waiting = asyncio.ensure_future(house.register(1))
        await asyncio.sleep(1)
        assert not waiting.done()
        house.log.append(bootstrap_records())  # of the epoch before: committed by the first record of this one
        house.log.commit()
        house.log.held = False
        await asyncio.sleep(0.1)
        house.log.commit()
        assert await waiting == ErrorCode.NONE
        assert house.log.batches[:2] == [tuple(bootstrap_records()), (NoOpRecord(),)]

    play(scenario)


@pytest.mark.parametrize("founding", [False, True])
def test_a_transaction_that_the_leader_before_left_open_is_aborted(founding: bool) -> None:
    async def scenario(house: House) -> None:
        house.log.elect(2)
        if not founding:
            house.log.append(bootstrap_records())
        house.log.append([BeginTransactionRecord(name="half"), *bootstrap_records()])
        house.log.append([TopicRecord(name="half", topic_id=UUID(int=1))])
        house.log.elect(1)
        await house.brokers(5)
        await house.create("whole", [[5]])
        assert house.image.topics.names() == ["whole"]
        assert dict(house.image.features.levels) == dict(DEFAULT_LEVELS)
        records = [record for batch in house.log.batches for record in batch]
        ends = [record for record in records if isinstance(record, AbortTransactionRecord)]
        assert ends == [AbortTransactionRecord(reason="Its controller has lost the leadership.")]
        house.log.elect(3)
        house.log.elect(1)
        await house.beat(5)
        again = [record for batch in house.log.batches for record in batch if type(record) is AbortTransactionRecord]
        assert again == ends, "once is enough"

    play(scenario)


def test_a_transaction_that_was_ended_is_left_alone() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(2)
        house.log.append([BeginTransactionRecord(), *bootstrap_records()])
        house.log.append([EndTransactionRecord()])
        house.log.elect(1)
        await house.brokers(5)
        assert not any(isinstance(record, AbortTransactionRecord) for batch in house.log.batches for record in batch)

    play(scenario)


def test_a_silent_broker_is_fenced_when_its_session_ends_and_not_before() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(5, 6)
        await house.create("t", [[5, 6], [6, 5]])
        for _ in range(4):
            await asyncio.sleep(2)
            await house.beat(6)
        assert house.fenced() == []
        await asyncio.sleep(TIMEOUT_S - 8 - 0.01)
        assert house.fenced() == []
        await asyncio.sleep(0.02)
        assert house.fenced() == [5]
        assert house.leaders("t") == [6, 6]
        answer = await house.beat(5)
        assert (answer.is_fenced, house.fenced()) == (False, []), "it is heard again"

    play(scenario)


def test_a_new_term_gives_every_broker_a_full_session() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(5)
        await asyncio.sleep(TIMEOUT_S - 1)
        house.log.elect(2)
        await asyncio.sleep(100)
        assert house.fenced() == [], "another controller's business"
        house.log.elect(1)
        await asyncio.sleep(TIMEOUT_S - 0.01)
        assert house.fenced() == []
        await asyncio.sleep(0.02)
        assert house.fenced() == [5]

    play(scenario)


def test_a_lost_term_keeps_nothing_that_was_not_committed() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(5)
        house.log.held = True
        creating = asyncio.ensure_future(house.create("t", [[5]]))
        await asyncio.sleep(0.1)
        house.log.elect(2)
        assert await refused(creating) is ErrorCode.NOT_CONTROLLER
        assert await refused(house.beat(5)) is ErrorCode.NOT_CONTROLLER
        house.log.held = False
        house.log.elect(1)
        await house.create("t", [[5]])
        assert house.leaders("t") == [5]

    play(scenario)


def test_a_term_lost_while_becoming_active_is_refused_and_the_next_one_works() -> None:
    async def scenario(house: House) -> None:
        house.log.held = True
        house.log.elect(1)
        waiting = asyncio.ensure_future(house.register(5))
        await asyncio.sleep(0.1)
        house.log.elect(2)
        assert await refused(waiting) is ErrorCode.NOT_CONTROLLER
        house.log.held = False
        house.log.elect(1)
        assert await house.register(5) == ErrorCode.NONE

    play(scenario)


def test_a_broker_without_a_disk_is_fenced_leads_nothing_and_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(1, 2)
        await house.create("t", [[1], [2]])
        assert (await house.beat(1, disk=False)) == BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True)
        assert (house.fenced(), house.leaders("t")) == ([1], [-1, 2])

        def search(*_: object, **__: object) -> None:
            raise AssertionError("what that means for partitions is known")

        monkeypatch.setattr(brokers, "records_without_broker", search)
        monkeypatch.setattr(brokers, "records_without_directories", search)
        written = len(house.log.batches)
        house.service.on_leader(2, 2)
        house.service.on_leader(1, 3)  # who takes over looks for partitions without a leader
        for _ in range(3):
            assert (await house.beat(1, disk=False)) == BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True)
        assert house.log.batches[written:] == [(NoOpRecord(),)]
        topic = CreatableTopic(name="u", num_partitions=6, replication_factor=1)
        await house.service.call(CreateTopicsRequest(topics=[topic]), 7)
        assert (house.fenced(), house.leaders("t"), house.leaders("u")) == ([1], [-1, 2], [2] * 6)

    play(scenario)


def test_another_process_with_the_id_of_a_live_broker_is_refused() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(5)
        assert await house.register(5, incarnation=1) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        await asyncio.sleep(TIMEOUT_S + 0.01)
        assert await house.register(5, incarnation=1) == ErrorCode.NONE

    play(scenario)


def test_the_controllers_own_broker_need_not_wait_for_the_session_of_the_process_before() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(1, 5)
        house.log.elect(-1)
        house.log.elect(1)  # as after kill -9 and a restart: both are unfenced in the image, neither was heard
        assert await house.register(5, incarnation=1) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert await house.register(1, incarnation=1) == ErrorCode.NONE
        await house.beat(1)
        assert await house.register(1, incarnation=2) == ErrorCode.DUPLICATE_BROKER_REGISTRATION

    play(scenario)


def test_a_broker_that_stops_waits_until_everyone_knows_that_its_leaders_moved() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(5, 6)
        await house.create("t", [[5, 6]])
        before = house.image.offset
        answer = await house.beat(5, stop=True)
        assert (answer.should_shut_down, house.leaders("t")) == (False, [6])
        assert not (await house.beat(5, stop=True)).should_shut_down, "6 has not said that it knows"
        await house.beat(6, offset=before)
        assert not (await house.beat(5, stop=True)).should_shut_down
        await house.beat(6)
        assert (await house.beat(5, stop=True)).should_shut_down
        assert house.fenced() == [5]

    play(scenario)


def test_a_new_controller_does_not_let_a_stopping_broker_go_too_early() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(5, 6)
        await house.create("t", [[5, 6]])
        before = house.image.offset
        await house.beat(5, stop=True)
        house.log.elect(2)
        house.log.elect(1)
        await house.beat(6, offset=before)
        assert not (await house.beat(5, stop=True)).should_shut_down
        await house.beat(6)
        assert (await house.beat(5, stop=True)).should_shut_down

    play(scenario)


def test_preferred_leaders_come_back() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(5, 6)
        await house.create("t", [[5, 6]])
        topic = house.image.topics.get("t")
        assert topic is not None
        house.log.append([PartitionChangeRecord(topic_id=topic.topic_id, partition_id=0, leader=6)])
        for _ in range(299):
            await asyncio.sleep(1)
            await house.beat(5)
            await house.beat(6)
        assert house.leaders("t") == [6]
        await asyncio.sleep(2)
        assert house.leaders("t") == [5]

    play(scenario)


def test_unclean_elections_follow_the_setting_at_once() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(5, 6)
        await house.create("t", [[5, 6]])
        topic = house.image.topics.get("t")
        assert topic is not None
        house.log.append([PartitionChangeRecord(topic_id=topic.topic_id, partition_id=0, leader=-1, isr=[5])])
        await asyncio.sleep(5)
        await house.beat(6)
        await asyncio.sleep(TIMEOUT_S - 4)
        assert (house.fenced(), house.leaders("t")) == ([5], [-1])
        change = AlterableConfig(name="unclean.leader.election.enable", value="true")
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
        await house.service.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        await asyncio.sleep(0.1)
        assert house.leaders("t") == [6]

    play(scenario)


def test_a_decision_about_very_many_partitions_goes_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "CHANGES_PER_BATCH", 4)

    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(5, 6)
        await house.create("t", [[5, 6]] * 10)
        house.log.batches.clear()
        for _ in range(2):
            await asyncio.sleep(TIMEOUT_S / 2)
            await house.beat(6)
        await asyncio.sleep(0.1)
        assert [len(batch) for batch in house.log.batches] == [4, 4, 3]
        assert (house.fenced(), house.leaders("t")) == ([5], [6] * 10)

    play(scenario)


def test_in_a_very_big_cluster_a_broker_is_fenced_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_keeper, "PARTITIONS_AT_ONCE", 10)
    monkeypatch.setattr(session_keeper, "decide_move_away", partial(decide_move_away, limit=4))

    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(5, 6)
        for name in "abcdef":
            await house.create(name, [[5, 6]] * 3)
        house.log.batches.clear()
        for _ in range(2):
            await asyncio.sleep(TIMEOUT_S / 2)
            await house.beat(6)
        await asyncio.sleep(0.1)
        assert [len(batch) for batch in house.log.batches] == [6, 6, 6, 1]
        assert house.fenced() == [5]
        assert [house.leaders(name) for name in "abcdef"] == [[6, 6, 6]] * 6

    play(scenario)


def test_a_request_that_is_not_the_controllers() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        assert await refused(house.service.call(MetadataRequest(), 12)) is ErrorCode.UNSUPPORTED_VERSION

    play(scenario)


def test_a_broker_with_very_many_partitions_leaves_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "PARTITIONS_PER_DECISION", 4)

    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(5, 6)
        await house.create("t", [[5, 6]] * 10)
        led = []
        for _ in range(4):
            assert not (await house.beat(5, stop=True)).should_shut_down
            led.append(house.leaders("t").count(5))
        assert led == [6, 2, 0, 0]
        await house.beat(6)  # it has read that it leads them all
        assert (await house.beat(5, stop=True)).should_shut_down
        assert (house.leaders("t"), house.fenced()) == ([6] * 10, [5])

    play(scenario)


def test_a_broker_with_very_many_partitions_comes_back_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "PARTITIONS_PER_DECISION", 4)
    monkeypatch.setattr(session_keeper, "PARTITIONS_PER_DECISION", 4)

    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(5)
        await house.create("t", [[5]] * 10)
        await asyncio.sleep(TIMEOUT_S + 0.01)
        assert (house.fenced(), house.leaders("t")) == ([5], [-1] * 10)
        await house.beat(5)
        await asyncio.sleep(0.1)
        assert house.leaders("t") == [5] * 10
        assert [len(batch) for batch in house.log.batches[-2:]] == [1 + 4, 6]

    play(scenario)


def test_who_takes_over_finds_leaders_for_what_the_one_before_left_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "PARTITIONS_PER_DECISION", 4)

    async def scenario(house: House) -> None:
        house.log.elect(1)
        await house.brokers(5)
        await house.create("t", [[5]] * 10)
        await asyncio.sleep(TIMEOUT_S + 0.01)
        await house.beat(5)
        assert house.leaders("t") == [5] * 4 + [-1] * 6
        house.log.elect(2)
        house.log.elect(1)
        await asyncio.sleep(0.1)
        assert house.leaders("t") == [5] * 10

    play(scenario)
