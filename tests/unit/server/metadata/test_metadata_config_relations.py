"""The relations between broker configs that must hold when a node starts."""

from __future__ import annotations

import pytest

from barnabas.core.config import ConfigError
from barnabas.server.metadata.config_relations import RELATIONS, ConfigRelation, check_relations
from barnabas.server.metadata.configs.tables import BROKER_CONFIGS

DEFAULTS = BROKER_CONFIGS.parse_all(
    {"node.id": "1", "process.roles": "broker,controller", "controller.listener.names": "CONTROLLER"}
)


def test_defaults_hold_the_relations() -> None:
    check_relations(DEFAULTS)
    broken = [r for r in RELATIONS if DEFAULTS[r.lesser] > DEFAULTS[r.greater]]  # type: ignore[operator]
    assert broken == []


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: f"{relation.lesser} {relation.greater}")
def test_broken_relation_is_rejected(relation: ConfigRelation) -> None:
    greater = DEFAULTS[relation.greater]
    assert isinstance(greater, int)
    with pytest.raises(ConfigError, match=relation.lesser):
        check_relations({**DEFAULTS, relation.lesser: greater + 1})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "group.consumer.session.timeout.ms",
            1_000,
            "group.consumer.min.session.timeout.ms=45000 must be at most group.consumer.session.timeout.ms=1000. "
            "Change one of them.",
        ),
        (
            "replica.lag.time.max.ms",
            400,
            "replica.fetch.wait.max.ms=500 must be at most replica.lag.time.max.ms=400. Change one of them.",
        ),
    ],
)
def test_message_has_both_configs_and_their_values(name: str, value: int, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_relations({**DEFAULTS, name: value})
    assert str(raised.value) == message


def test_heartbeat_interval_is_less_than_the_session_timeout() -> None:
    same = {"group.consumer.heartbeat.interval.ms": 10_000, "group.consumer.session.timeout.ms": 10_000}
    bounds = {"group.consumer.min.session.timeout.ms": 1_000}
    with pytest.raises(ConfigError, match="must be less than"):
        check_relations({**DEFAULTS, **bounds, **same})


def test_the_memory_of_requests_has_room_for_the_largest_one() -> None:
    pool, request = "queued.max.request.bytes", "socket.request.max.bytes"
    for allowed in (-1, 0, DEFAULTS[request]):
        check_relations({**DEFAULTS, pool: allowed})
    with pytest.raises(
        ConfigError, match=r"queued.max.request.bytes=99 must be at least socket.request.max.bytes=100,"
    ):
        check_relations({**DEFAULTS, pool: 99, request: 100})
