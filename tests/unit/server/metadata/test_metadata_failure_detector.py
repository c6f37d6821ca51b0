"""The active controller fences a broker whose process has ended, before the session of the broker ends.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.server.metadata.controller.suspicions import AGAIN_MS, CONFIRM_MS, FIRST_MS, ProbeOutcome
from tests.unit.server.metadata.controller_house import TIMEOUT_S, House, play

CONFIRMED_S = (CONFIRM_MS + 10) / 1000
SOON_S = (FIRST_MS + CONFIRM_MS + 10) / 1000


async def two_brokers(house: House) -> None:
    """Brokers 5 and 6; 5 leads the partition of topic t."""
    house.log.elect(1)
    await house.brokers(5, 6)
    await house.create("t", [[5, 6]])


def test_a_broker_whose_connection_is_lost_and_refused_is_fenced_at_once() -> None:
    async def scenario(house: House) -> None:
        await two_brokers(house)
        house.prober.refuse(5)
        house.service.on_connection_lost(5)
        await asyncio.sleep(CONFIRMED_S)
        assert (house.fenced(), house.leaders("t")) == ([5], [6])
        assert [addresses for _, addresses in house.prober.seen] == [[("host5", 9092)]] * 2

    play(scenario)


@pytest.mark.parametrize("outcome", [ProbeOutcome.ACCEPTED, ProbeOutcome.SILENT])
def test_a_broker_that_does_not_refuse_is_fenced_when_its_session_expires(outcome: ProbeOutcome) -> None:
    async def scenario(house: House) -> None:
        await two_brokers(house)
        house.prober.outcomes["host5"] = outcome
        house.service.on_connection_lost(5)
        for _ in range(4):
            await asyncio.sleep(2)
            await house.beat(6, connection_id=6)
        assert house.fenced() == []
        await asyncio.sleep(TIMEOUT_S - 8 + 0.02)
        assert house.fenced() == [5]
        probes = len(house.prober.seen)
        assert probes <= TIMEOUT_S * 1000 / AGAIN_MS + 1
        await asyncio.sleep(5)
        assert len(house.prober.seen) == probes, "nothing is left to find out about a fenced broker"

    play(scenario)


def test_a_refusal_without_a_lost_connection_is_never_seen() -> None:
    async def scenario(house: House) -> None:
        await two_brokers(house)
        house.prober.refuse(5, 6)
        await asyncio.sleep(3)
        assert (house.fenced(), house.prober.seen) == ([], [])

    play(scenario)


def test_a_broker_that_connects_again_is_not_fenced() -> None:
    async def scenario(house: House) -> None:
        await two_brokers(house)
        house.prober.refuse(5)
        house.service.on_connection_lost(5)
        await asyncio.sleep(CONFIRM_MS / 2000)
        await house.beat(5, connection_id=50)
        await asyncio.sleep(2)
        assert house.fenced() == []
        house.service.on_connection_lost(50)
        await asyncio.sleep(CONFIRMED_S)
        assert house.fenced() == [5]

    play(scenario)


def test_a_new_controller_finds_the_brokers_that_died_with_the_previous_one() -> None:
    async def scenario(house: House) -> None:
        await two_brokers(house)
        house.log.elect(2)
        house.service.on_connection_lost(5)
        house.prober.refuse(5)
        house.log.elect(1)
        await asyncio.sleep(FIRST_MS / 2000)
        await house.beat(6, connection_id=7)
        await asyncio.sleep(SOON_S)
        assert (house.fenced(), house.leaders("t")) == ([5], [6])
        assert {addresses[0][0] for _, addresses in house.prober.seen} == {"host5"}

    play(scenario)


def test_a_new_controller_probes_again_until_a_broker_has_sent_a_heartbeat() -> None:
    async def scenario(house: House) -> None:
        await two_brokers(house)
        house.log.elect(2)
        house.log.elect(1)
        await asyncio.sleep(1)
        assert house.fenced() == []
        house.prober.refuse(6)  # dies before its first heartbeat to the new controller
        await asyncio.sleep((AGAIN_MS + CONFIRM_MS + 10) / 1000)
        assert house.fenced() == [6]

    play(scenario)


def test_a_broker_that_was_wrongly_fenced_comes_back_and_is_not_suspected_again() -> None:
    async def scenario(house: House) -> None:
        await two_brokers(house)
        house.prober.refuse(5)  # a firewall refuses the controller's connections; the broker runs
        house.service.on_connection_lost(5)
        await asyncio.sleep(CONFIRMED_S)
        assert house.fenced() == [5]
        assert not (await house.beat(5, connection_id=50)).is_fenced
        house.prober.seen.clear()
        house.service.on_connection_lost(50)
        await asyncio.sleep(TIMEOUT_S - 0.1)
        assert (house.fenced(), house.prober.seen) == ([6], []), "6 was silent all the time"
        await asyncio.sleep(0.2)
        assert house.fenced() == [5, 6]

    play(scenario)


def test_a_restarted_process_registers_as_soon_as_the_host_has_refused() -> None:
    async def scenario(house: House) -> None:
        await two_brokers(house)
        house.prober.refuse(5)  # the new process has bound its port and does not listen yet
        house.service.on_connection_lost(5)
        assert await house.register(5, incarnation=1) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        await asyncio.sleep(CONFIRMED_S)
        assert await house.register(5, incarnation=1) == ErrorCode.NONE
        assert not (await house.beat(5, connection_id=50)).is_fenced

    play(scenario)


def test_another_process_does_not_replace_one_that_accepts_connections() -> None:
    async def scenario(house: House) -> None:
        await two_brokers(house)
        house.service.on_connection_lost(5)
        for _ in range(10):
            assert await house.register(5, incarnation=1) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
            await asyncio.sleep(0.3)
        assert house.fenced() == []

    play(scenario)


def test_another_process_does_not_replace_one_that_is_connected_and_whose_address_refuses() -> None:
    async def scenario(house: House) -> None:
        await two_brokers(house)
        house.prober.refuse(5)
        for _ in range(10):
            assert await house.register(5, incarnation=1) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
            await asyncio.sleep(0.3)
        assert (house.fenced(), house.prober.seen) == ([], [])

    play(scenario)


def test_a_probe_of_the_previous_process_does_not_fence_the_next_one() -> None:
    async def scenario(house: House) -> None:
        await two_brokers(house)
        house.prober.refuse(5)
        house.service.on_connection_lost(5)
        await asyncio.sleep(CONFIRM_MS / 2000)
        house.prober.takes_s = 0.3  # the second probe is under way while the next process registers
        await asyncio.sleep(CONFIRM_MS / 1000)
        await house.beat(5, stop=True, connection_id=50)
        await house.beat(6, connection_id=6)
        assert (await house.beat(5, stop=True, connection_id=50)).should_shut_down
        assert await house.register(5, incarnation=1) == ErrorCode.NONE
        assert not (await house.beat(5, connection_id=51)).is_fenced
        await asyncio.sleep(1)
        assert house.fenced() == []

    play(scenario)


def test_a_broker_that_was_stopped_in_order_is_not_probed() -> None:
    async def scenario(house: House) -> None:
        await two_brokers(house)
        house.prober.refuse(5)
        await house.beat(5, stop=True, connection_id=5)
        await house.beat(6, connection_id=6)
        assert (await house.beat(5, stop=True, connection_id=5)).should_shut_down
        house.service.on_connection_lost(5)
        written = len(house.log.batches)
        await asyncio.sleep(2)
        assert (house.prober.seen, len(house.log.batches)) == ([], written)

    play(scenario)


def test_a_broker_that_dies_in_its_controlled_shutdown_is_fenced_at_once() -> None:
    async def scenario(house: House) -> None:
        await two_brokers(house)
        await house.beat(5, stop=True, connection_id=5)
        assert house.fenced() == []
        house.prober.refuse(5)
        house.service.on_connection_lost(5)
        await asyncio.sleep(CONFIRMED_S)
        assert house.fenced() == [5]

    play(scenario)


def test_a_controller_that_lost_its_leadership_fences_nobody() -> None:
    async def scenario(house: House) -> None:
        await two_brokers(house)
        house.prober.refuse(5)
        house.service.on_connection_lost(5)
        await asyncio.sleep(CONFIRM_MS / 2000)
        house.log.elect(2)
        await asyncio.sleep(2)
        assert house.fenced() == []

    play(scenario)


def test_the_config_turns_probes_off() -> None:
    async def scenario(house: House) -> None:
        await two_brokers(house)
        house.prober.refuse(5, 6)
        house.service.on_connection_lost(5)
        await asyncio.sleep(TIMEOUT_S - 0.1)
        assert (house.fenced(), house.prober.seen) == ([], [])

    play(scenario, House(barnabas_broker_probe_enable=False))


# ---- with the metadata log in ZooKeeper


def test_a_broker_that_loses_its_zookeeper_session_is_fenced_at_once() -> None:
    async def scenario(house: House) -> None:
        await two_brokers(house)
        house.service.on_nodes_registered(frozenset({1, 5, 6}))
        await asyncio.sleep(0.1)
        assert house.fenced() == []
        house.service.on_nodes_registered(frozenset({1, 6}))
        await asyncio.sleep(0.1)
        assert (house.fenced(), house.leaders("t"), house.prober.seen) == ([5], [6], [])

    play(scenario)


def test_a_new_controller_fences_the_brokers_without_a_zookeeper_session() -> None:
    async def scenario(house: House) -> None:
        await two_brokers(house)
        house.service.on_nodes_registered(frozenset({1, 5, 6}))
        house.log.elect(2)
        house.log.held = True
        house.log.elect(1)
        house.service.on_nodes_registered(frozenset({1, 6}))
        await asyncio.sleep(0.1)
        assert house.fenced() == [], "this controller is not active yet"
        house.log.held = False
        house.log.commit()
        await asyncio.sleep(0.05)
        assert house.fenced() == [5]

    play(scenario)


def test_a_broker_that_comes_back_without_a_zookeeper_session_is_not_fenced_again() -> None:
    async def scenario(house: House) -> None:
        await two_brokers(house)
        house.service.on_nodes_registered(frozenset({1, 5, 6}))
        house.service.on_nodes_registered(frozenset({1, 6}))
        await asyncio.sleep(0.1)
        assert not (await house.beat(5, connection_id=5)).is_fenced
        house.service.on_nodes_registered(frozenset({1, 6, 7}))
        await asyncio.sleep(0.1)
        assert house.fenced() == []

    play(scenario)
