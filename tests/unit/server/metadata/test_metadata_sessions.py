"""Sessions of brokers with the active controller."""

from __future__ import annotations

from barnabas.server.metadata.controller.sessions import BrokerSessions
from barnabas.server.metadata.image.cluster import BrokerImage, BrokersImage, ClusterImage


def sessions(former_leader: tuple[int, int] | None = None) -> BrokerSessions:
    """Brokers 1 and 2 are unfenced, 3 is fenced; the controller has just become active, at 1000."""
    brokers = {n: BrokerImage(n, epoch=n * 10, fenced=n == 3) for n in (1, 2, 3)}
    base = BrokersImage()
    image = ClusterImage(cluster_id="c", brokers=BrokersImage(base.brokers.evolve(brokers, []), base.controllers))
    return BrokerSessions(image, 1_000, session_timeout_ms=100, former_leader=former_leader)


def test_the_session_beside_the_former_controller_began_with_its_last_response() -> None:
    heard = sessions((1, 970))
    assert heard.live(1_069) == {1, 2}
    assert heard.expired(1_070) == [1]
    assert sessions((1, 100)).live(1_032) == {1, 2}, "a broker that runs has a third of the time-out to say so"
    assert sessions((1, 100)).expired(1_034) == [1]
    assert sessions((3, 100)).expired(1_099) == [], "broker 3 is fenced already"
    assert sessions((7, 100)).expired(1_099) == [], "the former controller was no broker"
    heard.on_heartbeat(1, 10, 5, 1_020)
    assert heard.expired(1_070) == []


def test_a_new_controller_gives_everyone_a_full_session() -> None:
    heard = sessions()
    assert heard.live(1_099) == {1, 2}
    assert heard.expired(1_099) == []
    assert heard.next_deadline_ms() == 1_100
    heard.on_heartbeat(1, 10, 5, 1_050)
    heard.on_heartbeat(2, 20, 5, 1_010)
    assert heard.expired(1_150) == [2, 1], "the one silent longest first"
    heard.forget(2)
    assert heard.expired(1_150) == [1]


def test_another_lifetime_is_another_session() -> None:
    heard = sessions()
    heard.on_heartbeat(1, 10, 7, 1_050)
    heard.on_leaders_moved(1, 40)
    heard.on_heartbeat(1, 11, 0, 1_060)
    assert heard.may_stop(1, [1, 2]), "the new process has not asked to stop"


def test_a_broker_may_stop_when_everyone_active_knows_that_it_leads_nothing() -> None:
    heard = sessions()
    assert heard.may_stop(1, [1, 2])
    heard.on_leaders_moved(1, 40)
    heard.on_heartbeat(2, 20, 39, 1_010)
    assert not heard.may_stop(1, [1, 2])
    assert heard.may_stop(1, [1]), "2 is not active any more"
    heard.on_heartbeat(2, 20, 40, 1_020)
    assert heard.may_stop(1, [1, 2])
