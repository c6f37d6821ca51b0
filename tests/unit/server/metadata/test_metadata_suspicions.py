"""When the controller takes the process of a broker for dead. Time is an argument."""

from __future__ import annotations

import random

from barnabas.server.metadata.controller.suspicions import (
    AGAIN_MS,
    CONFIRM_MS,
    FIRST_MS,
    PROBES_MAX,
    BrokerSuspicions,
    Probe,
    ProbeOutcome,
)

REFUSED, ACCEPTED, SILENT = ProbeOutcome.REFUSED, ProbeOutcome.ACCEPTED, ProbeOutcome.SILENT


def lost() -> BrokerSuspicions:
    """Broker 5 of epoch 50 has lost its connection 7 at 1000."""
    found = BrokerSuspicions(node_id=1)
    assert found.on_heartbeat(5, 50, 7)
    assert found.on_connection_lost(7) == 5
    found.suspect(5, 50, 1_000)
    return found


def probe(suspicions: BrokerSuspicions, now_ms: int) -> Probe:
    (one,) = suspicions.take_due(now_ms)
    return one


def test_two_refusals_far_enough_apart_prove_that_the_process_has_ended() -> None:
    found = lost()
    assert found.next_ms() == 1_000
    first = probe(found, 1_000)
    assert (first.broker_id, first.broker_epoch, found.next_ms()) == (5, 50, None)
    assert not found.on_probed(first, REFUSED, 1_001)
    assert found.next_ms() == 1_001 + CONFIRM_MS
    assert found.take_due(1_000 + CONFIRM_MS) == []
    assert found.on_probed(probe(found, 1_001 + CONFIRM_MS), REFUSED, 1_002 + CONFIRM_MS)
    assert found.next_ms() is None


def test_a_connected_broker_is_not_probed() -> None:
    found = BrokerSuspicions()
    found.on_heartbeat(5, 50, 7)
    assert (found.next_ms(), found.take_due(10**9)) == (None, [])


def test_an_accepted_connection_and_no_answer_prove_nothing_and_are_repeated() -> None:
    for outcome in (ACCEPTED, SILENT):
        found = lost()
        now = 1_000
        for _ in range(20):
            assert not found.on_probed(probe(found, now), outcome, now)
            assert found.next_ms() == now + AGAIN_MS
            now += AGAIN_MS


def test_an_accepted_connection_between_two_refusals_starts_the_count_again() -> None:
    found = lost()
    assert not found.on_probed(probe(found, 1_000), REFUSED, 1_000)
    assert not found.on_probed(probe(found, 1_000 + CONFIRM_MS), ACCEPTED, 1_200)
    assert not found.on_probed(probe(found, 1_200 + AGAIN_MS), REFUSED, 5_000)
    assert found.on_probed(probe(found, 5_000 + CONFIRM_MS), REFUSED, 5_000 + CONFIRM_MS)


def test_a_heartbeat_clears_the_suspicion_and_makes_running_probes_worthless() -> None:
    found = lost()
    assert not found.on_probed(probe(found, 1_000), REFUSED, 1_000)
    late = probe(found, 1_000 + CONFIRM_MS)
    assert found.on_heartbeat(5, 50, 8)
    assert not found.on_probed(late, REFUSED, 2_000)
    assert found.next_ms() is None


def test_an_old_probe_says_nothing_about_a_newer_process() -> None:
    found = lost()
    assert not found.on_probed(probe(found, 1_000), REFUSED, 1_000)
    old = probe(found, 1_000 + CONFIRM_MS)
    found.on_heartbeat(5, 60, 8)
    found.on_connection_lost(8)
    found.suspect(5, 60, 1_300)
    assert not found.on_probed(old, REFUSED, 1_300)
    assert probe(found, 1_300).broker_epoch == 60


def test_the_loss_of_an_older_connection_means_nothing() -> None:
    found = BrokerSuspicions()
    found.on_heartbeat(5, 50, 7)
    found.on_heartbeat(5, 50, 8)
    assert found.on_connection_lost(7) is None
    assert found.on_connection_lost(9) is None, "the connection of a client"
    assert found.on_connection_lost(8) == 5
    assert found.on_connection_lost(8) is None


def test_a_new_controller_waits_for_heartbeats_and_then_probes_the_others() -> None:
    found = BrokerSuspicions(node_id=1)
    found.on_active([(1, 10), (5, 50), (6, 60)], 1_000)
    found.on_heartbeat(1, 10, None)
    found.on_heartbeat(6, 60, 3)
    assert found.next_ms() == 1_000 + FIRST_MS
    assert [each.broker_id for each in found.take_due(1_000 + FIRST_MS)] == [5]


def test_the_controllers_own_broker_is_never_suspected() -> None:
    found = BrokerSuspicions(node_id=5)
    found.on_active([(5, 50)], 1_000)
    found.suspect(5, 50, 0)
    assert found.next_ms() is None


def test_a_process_that_lives_although_its_address_refuses_is_not_suspected_again() -> None:
    found = lost()
    assert not found.on_probed(probe(found, 1_000), REFUSED, 1_000)
    assert found.on_probed(probe(found, 1_000 + CONFIRM_MS), REFUSED, 1_000 + CONFIRM_MS)
    assert not found.on_heartbeat(5, 50, 8), "it was taken for dead"
    found.on_connection_lost(8)
    found.suspect(5, 50, 2_000)
    assert found.next_ms() is None
    assert found.on_heartbeat(5, 50, 9), "reported once"
    assert found.on_heartbeat(5, 60, 10)
    found.suspect(5, 60, 3_000)
    assert found.next_ms() == 3_000, "the next process may be suspected"


def test_a_suspicion_is_not_restarted_by_a_second_reason() -> None:
    found = lost()
    assert not found.on_probed(probe(found, 1_000), REFUSED, 1_000)
    found.suspect(5, 50, 1_100)
    assert found.on_probed(probe(found, 1_000 + CONFIRM_MS), REFUSED, 1_000 + CONFIRM_MS)


def test_a_fenced_broker_is_forgotten() -> None:
    found = lost()
    late = probe(found, 1_000)
    found.forget(5)
    assert found.next_ms() is None
    assert not found.on_probed(late, REFUSED, 9_000)


def test_few_probes_run_at_the_same_time() -> None:
    found = BrokerSuspicions()
    found.on_active([(broker, broker) for broker in range(100)], 0)
    first = found.take_due(FIRST_MS)
    assert [each.broker_id for each in first] == list(range(PROBES_MAX))
    assert (found.take_due(FIRST_MS), found.next_ms()) == ([], None)
    found.on_probed(first[0], SILENT, 200)
    assert [each.broker_id for each in found.take_due(200)] == [PROBES_MAX]


def test_random_events_never_kill_a_broker_without_two_refusals_since_its_last_heartbeat() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        found = BrokerSuspicions(node_id=0)
        epochs = dict.fromkeys(range(4), 1)
        connections = 0
        refusals: dict[int, list[int]] = {broker: [] for broker in epochs}
        running: list[Probe] = []
        found.on_active(epochs.items(), 0)
        now = 0
        for _ in range(300):
            now += rng.choice([0, 1, 50, 150, 300])
            broker = rng.randrange(4)
            match rng.randrange(5):
                case 0:
                    connections += 1
                    epochs[broker] += rng.random() < 0.3
                    found.on_heartbeat(broker, epochs[broker], connections)
                    refusals[broker].clear()
                case 1:
                    gone = found.on_connection_lost(rng.randrange(connections + 1))
                    if gone is not None:
                        found.suspect(gone, epochs[gone], now)
                case 2:
                    running += found.take_due(now)
                    assert len(running) <= PROBES_MAX + 4
                case _ if running:
                    one = running.pop(rng.randrange(len(running)))
                    outcome = rng.choice([REFUSED, REFUSED, ACCEPTED, SILENT])
                    if outcome is REFUSED:
                        refusals[one.broker_id].append(now)
                    dead = found.on_probed(one, outcome, now)
                    if outcome is not REFUSED:
                        assert not dead
                    if dead:
                        seen = refusals[one.broker_id]
                        assert one.broker_id != 0
                        assert one.broker_epoch == epochs[one.broker_id]
                        assert seen[-1] - seen[0] >= CONFIRM_MS
