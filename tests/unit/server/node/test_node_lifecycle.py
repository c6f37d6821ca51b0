"""A broker's life in its cluster, with a real controller at the other end. Sleeps take virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.protocol.wire.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.wire.schema import Message
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.ports import ImageSubscriber
from barnabas.server.metadata.records.nodes import BrokerRegistrationChangeRecord
from barnabas.server.node.lifecycle import BrokerLifecycle, BrokerState, RegistrationError
from barnabas.server.node.setup.identity import Identity
from tests.configs import lifecycle_config
from tests.unit.server.metadata.controller_house import House, play


@dataclass
class Directory:
    directory_id: UUID
    failure: BaseException | None = None
    previous_broker_epoch: int = -1


class Channel:
    """To the house's controller; `broken` raises instead, `seen` keeps what was sent and when."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.broken: KafkaError | None = None
        self.seen: list[tuple[float, Message]] = []

    async def call(self, request: Message, version: int, ctx: object = None) -> Message:
        self.seen.append((asyncio.get_running_loop().time(), request))
        if self.broken is not None:
            raise self.broken
        return await self.house.service.call(request, version)

    def beats(self) -> list[tuple[float, BrokerHeartbeatRequest]]:
        return [(when, request) for when, request in self.seen if isinstance(request, BrokerHeartbeatRequest)]


class LateImages:
    """Passes images on to a subscriber; while `held` is true, they wait until `release`."""

    def __init__(self, subscriber: ImageSubscriber) -> None:
        self.subscriber = subscriber
        self.held = False
        self.waiting: list[tuple[ClusterDelta, ClusterImage]] = []

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        if self.held:
            self.waiting.append((delta, image))
        else:
            self.subscriber.on_image(delta, image)

    def release(self) -> None:
        self.held = False
        for delta, image in self.waiting:
            self.subscriber.on_image(delta, image)


class Broker:
    def __init__(self, house: House, broker_id: int = 5, cluster_id: str = "c") -> None:
        self.channel = Channel(house)
        self.dirs = [Directory(UUID(int=7000 + broker_id))]
        self.lag = 0
        self.epochs: list[int] = []
        self.silences: list[tuple[float, bool]] = []
        """When `on_silence` was called, and with what."""
        self.life = BrokerLifecycle(
            self.channel,
            Identity(cluster_id, broker_id, is_new=False),
            [ListenerEndpoint("PLAINTEXT", f"host{broker_id}", 9092, "PLAINTEXT")],
            "rack",
            self.dirs,
            lambda: house.image.offset - self.lag,
            random.Random(broker_id),
            lifecycle_config(initial_broker_registration_timeout_ms=20_000),
            on_epoch=self.epochs.append,
            on_silence=lambda silent: self.silences.append((now(), silent)),
        )
        self.images = LateImages(self.life)
        house.publisher.subscribe(self.images)
        house.publisher.subscribe_leader(self.life.on_leader)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.life.run())
            try:
                yield
            finally:
                task.cancel()


def scenario(run: Callable[[House], Awaitable[None]]) -> None:
    async def elected(house: House) -> None:
        house.log.elect(1)
        await run(house)

    play(elected)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_broker_registers_fenced_and_is_unfenced_when_ready() -> None:
    async def run(house: House) -> None:
        broker = Broker(house)
        epoch = await broker.life.register()
        assert (broker.life.state, broker.epochs, house.fenced()) == (BrokerState.RECOVERY, [epoch], [5])
        async with broker.running():
            await asyncio.sleep(10)
            assert house.fenced() == [5], "it has not said that it is ready"
            before = now()
            await broker.life.wait_unfenced()
            assert (broker.life.state, house.fenced(), now() - before) == (BrokerState.RUNNING, [], 0.0)

    scenario(run)


def test_broker_behind_its_own_registration_stays_fenced() -> None:
    async def run(house: House) -> None:
        broker = Broker(house)
        broker.lag = 5
        await broker.life.register()
        async with broker.running():
            ready = asyncio.ensure_future(broker.life.wait_unfenced())
            await asyncio.sleep(3)
            assert not ready.done()
            broker.lag = 0
            await ready
            assert house.fenced() == []

    scenario(run)


def test_broker_is_ready_when_its_own_image_has_it_as_unfenced() -> None:
    async def run(house: House) -> None:
        broker = Broker(house)
        await broker.life.register()
        broker.images.held = True
        async with broker.running():
            ready = asyncio.ensure_future(broker.life.wait_unfenced())
            await asyncio.sleep(3)
            assert (broker.life.state, house.fenced(), ready.done()) == (BrokerState.RUNNING, [], False)
            broker.images.release()
            await ready

    scenario(run)


def test_heartbeats_are_sent_at_the_interval_and_keep_the_session() -> None:
    async def run(house: House) -> None:
        broker = Broker(house)
        await broker.life.register()
        async with broker.running():
            await broker.life.wait_unfenced()
            broker.channel.seen.clear()
            await asyncio.sleep(60)
            assert house.fenced() == []
            assert 29 <= len(broker.channel.beats()) <= 31

    scenario(run)


def test_lost_heartbeats_fence_and_the_next_one_unfences() -> None:
    async def run(house: House) -> None:
        broker = Broker(house)
        await broker.life.register()
        async with broker.running():
            await broker.life.wait_unfenced()
            broker.channel.broken = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
            await asyncio.sleep(15)
            assert house.fenced() == [5]
            broker.channel.broken = None
            await asyncio.sleep(2)
            assert (house.fenced(), broker.life.fenced, broker.epochs) == ([], False, [broker.life.broker_epoch])

    scenario(run)


def test_broker_knows_when_no_controller_has_answered_for_a_session() -> None:
    """A session of 9 s, and the interval of 2 s in which a heartbeat may have arrived without a response."""

    async def run(house: House) -> None:
        broker = Broker(house)
        await broker.life.register()
        async with broker.running():
            await broker.life.wait_unfenced()
            await asyncio.sleep(20)
            assert broker.silences == []
            last = broker.life.answered_at
            broker.channel.broken = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
            await asyncio.sleep(last + 14.5 - now())
            assert [round(when - last, 2) for when, _ in broker.silences] == [11, 12, 13, 14]
            assert all(silent for _, silent in broker.silences)
            broker.channel.broken = None
            await asyncio.sleep(20)
            assert [silent for _, silent in broker.silences[-2:]] == [True, False]

    scenario(run)


def test_an_unregistered_broker_registers_again_under_a_new_epoch() -> None:
    async def run(house: House) -> None:
        broker = Broker(house)
        await broker.life.register()
        async with broker.running():
            await broker.life.wait_unfenced()
            await house.service.call(UnregisterBrokerRequest(broker_id=5), 0)
            await asyncio.sleep(3)
            assert house.fenced() == []
            assert len(broker.epochs) == 2
            assert broker.epochs[1] == broker.life.broker_epoch > broker.epochs[0]

    scenario(run)


def test_second_process_with_the_same_broker_id_is_not_registered() -> None:
    async def run(house: House) -> None:
        first, second = Broker(house), Broker(house)
        await first.life.register()
        async with first.running():
            await first.life.wait_unfenced()
            second.life._incarnation_id = UUID(int=99)
            with pytest.raises(RegistrationError, match=r"ms=20000: Another process .* broker 5"):
                await second.life.register()

    scenario(run)


def test_restarted_broker_registers_after_the_old_session_expires() -> None:
    async def run(house: House) -> None:
        first, second = Broker(house), Broker(house)
        await first.life.register()
        async with first.running():
            await first.life.wait_unfenced()
        second.life._incarnation_id = UUID(int=99)
        before = now()
        await second.life.register()
        assert 8 < now() - before < 11

    scenario(run)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.INCONSISTENT_CLUSTER_ID, "belong to cluster c, the controller to another"),
        (ErrorCode.UNSUPPORTED_VERSION, "does not support. Upgrade this node"),
        (ErrorCode.INVALID_REGISTRATION, "same directory.id in meta.properties"),
    ],
)
def test_registration_errors_that_are_not_retriable_end_the_start(code: ErrorCode, words: str) -> None:
    async def run(house: House) -> None:
        broker = Broker(house)

        async def refuse(request: Message, version: int, ctx: object = None) -> Message:
            return BrokerRegistrationResponse(error_code=code)

        broker.channel.call = refuse  # type: ignore[method-assign]
        before = now()
        with pytest.raises(RegistrationError, match=words):
            await broker.life.register()
        assert now() == before

    scenario(run)


def test_a_refused_registration_names_the_feature_levels_that_are_not_supported() -> None:
    async def run(house: House) -> None:
        broker = Broker(house)
        broker.life._feature_levels = lambda: {"metadata.version": 31, "group.version": 1, "queue.version": 2}

        async def refuse(request: Message, version: int, ctx: object = None) -> Message:
            return BrokerRegistrationResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)

        broker.channel.call = refuse  # type: ignore[method-assign]
        with pytest.raises(RegistrationError) as refusal:
            await broker.life.register()
        assert (
            "(metadata.version 31, of which the node supports 3.3-IV3 to 4.3-IV0; queue.version 2, which the node "
            "does not know)" in str(refusal.value)
        )

    scenario(run)


def test_controlled_shutdown_moves_leaders_and_ends_when_others_have_the_metadata() -> None:
    async def run(house: House) -> None:
        leaving, staying = Broker(house, 5), Broker(house, 6)
        for broker in (leaving, staying):
            await broker.life.register()
        async with leaving.running(), staying.running():
            for broker in (leaving, staying):
                await broker.life.wait_unfenced()
            await house.create("t", [[5, 6], [6, 5]])
            await asyncio.sleep(1)
            before = now()
            assert await leaving.life.shut_down()
            assert now() - before < 0.5, "the one that stays said at once that it knows"
            assert (house.leaders("t"), house.fenced(), leaving.life.state) == ([6, 6], [5], BrokerState.SHUTTING_DOWN)

    scenario(run)


def test_broker_sends_no_heartbeat_after_controlled_shutdown_and_can_restart_at_once() -> None:
    async def run(house: House) -> None:
        leaving, staying = Broker(house, 5), Broker(house, 6)
        for broker in (leaving, staying):
            await broker.life.register()
        async with leaving.running(), staying.running():
            for broker in (leaving, staying):
                await broker.life.wait_unfenced()
            assert await leaving.life.shut_down()
            beats = len(leaving.channel.beats())
            await asyncio.sleep(3)  # a process takes its time to end
            assert (len(leaving.channel.beats()), house.fenced()) == (beats, [5])
            second, before = Broker(house, 5), now()
            second.life._incarnation_id = UUID(int=99)
            await second.life.register()
            async with second.running():
                await second.life.wait_unfenced()
                assert (now() - before < 0.1, house.fenced()) == (True, [])

    scenario(run)


def test_broker_that_died_during_controlled_shutdown_can_restart_at_once() -> None:
    async def run(house: House) -> None:
        leaving, staying = Broker(house, 5), Broker(house, 6)
        for broker in (leaving, staying):
            await broker.life.register()
        async with staying.running():
            async with leaving.running():
                for broker in (leaving, staying):
                    await broker.life.wait_unfenced()
                await house.create("t", [[5, 6], [6, 5]])
                staying.lag = 100  # it does not know yet that leaders moved, so the other one waits
                assert not await leaving.life.shut_down(1_000)
            second, before = Broker(house, 5), now()
            second.life._incarnation_id = UUID(int=99)
            await second.life.register()
            assert now() == before

    scenario(run)


def test_controlled_shutdown_times_out() -> None:
    async def run(house: House) -> None:
        broker = Broker(house)
        await broker.life.register()
        async with broker.running():
            await broker.life.wait_unfenced()
            broker.channel.broken = KafkaError(ErrorCode.NOT_CONTROLLER)
            before = now()
            assert not await broker.life.shut_down(5_000)
            assert now() - before == pytest.approx(5)

    scenario(run)


def test_offline_directory_is_reported_at_once() -> None:
    async def run(house: House) -> None:
        broker = Broker(house)
        broker.dirs.append(Directory(UUID(int=8000)))
        await broker.life.register()
        async with broker.running():
            await broker.life.wait_unfenced()
            await asyncio.sleep(1)
            broker.dirs[1].failure = OSError("gone")
            broker.life.on_directory_failed()
            await asyncio.sleep(0.01)
            assert broker.channel.beats()[-1][1].offline_log_dirs == [UUID(int=8000)]

    scenario(run)


def test_previous_broker_epoch_is_sent_if_all_directories_agree() -> None:
    async def run(house: House) -> None:
        broker = Broker(house)
        broker.dirs[:] = [Directory(UUID(int=n), previous_broker_epoch=17) for n in (2, 1)]
        await broker.life.register()
        sent = broker.channel.seen[0][1]
        assert isinstance(sent, BrokerRegistrationRequest)
        assert (sent.previous_broker_epoch, sent.log_dirs) == (17, [UUID(int=1), UUID(int=2)])
        broker.dirs[0].previous_broker_epoch = 16
        assert broker.life._registration().previous_broker_epoch == -1

    scenario(run)


def test_broker_that_loses_its_connection_to_the_controller_sends_a_heartbeat_at_once() -> None:
    async def run(house: House) -> None:
        broker = Broker(house)
        await broker.life.register()
        async with broker.running():
            await broker.life.wait_unfenced()
            await asyncio.sleep(1)
            broker.channel.seen.clear()
            broker.life.on_connection_lost()
            await asyncio.sleep(0.01)
            assert len(broker.channel.beats()) == 1

    scenario(run)


def test_broker_that_was_fenced_early_is_unfenced_at_once() -> None:
    async def run(house: House) -> None:
        broker = Broker(house)
        epoch = await broker.life.register()
        async with broker.running():
            await broker.life.wait_unfenced()
            await asyncio.sleep(1)
            house.service.keeper.end_session(5, epoch)  # as if the broker's process had ended
            await asyncio.sleep(0.1)
            fences = [
                record.fenced
                for batch in house.log.batches
                for record in batch
                if isinstance(record, BrokerRegistrationChangeRecord)
            ]
            assert (fences, house.fenced()) == ([-1, 1, -1], [])

    scenario(run)


def test_broker_sends_a_heartbeat_to_a_new_active_controller_at_once() -> None:
    async def run(house: House) -> None:
        broker = Broker(house)
        await broker.life.register()
        async with broker.running():
            await broker.life.wait_unfenced()
            await asyncio.sleep(1)
            broker.channel.seen.clear()
            house.log.elect(1)
            await asyncio.sleep(0.05)
            assert len(broker.channel.beats()) == 1

    scenario(run)
