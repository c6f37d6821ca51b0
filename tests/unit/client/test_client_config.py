"""Settings and what is made of them."""

from __future__ import annotations

import pytest

from barnabas.client.config import ADMIN_CONFIGS, CONSUMER_CONFIGS, PRODUCER_CONFIGS, resolve_config
from barnabas.client.consumer.subscription import ResetPolicy, parse_duration_ms
from barnabas.client.foreign_configs import INSTEAD, JAVA, LIBRDKAFKA
from barnabas.client.membership.subscriptions import build_assignors
from barnabas.client.options import ClusterConfig, parse_servers
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.values import EARLIEST, LATEST
from barnabas.core.config import ConfigError
from barnabas.protocol.security.config import SaslConfig, SecurityConfig
from tests.logs import messages

SERVERS = {"bootstrap.servers": "a:1"}


def test_keywords_win_over_the_mapping_and_defaults_are_kafkas() -> None:
    settings = resolve_config(PRODUCER_CONFIGS, {**SERVERS, "linger.ms": "7", "acks": "1"}, {"linger_ms": 9})
    assert (settings["linger.ms"], settings["acks"]) == (9, "1")
    assert (settings["batch.size"], settings["delivery.timeout.ms"]) == (16_384, 120_000)
    assert settings["max.in.flight.requests.per.connection"] == 5
    strategy = resolve_config(CONSUMER_CONFIGS, SERVERS, {})["partition.assignment.strategy"]
    assert [assignor.name for assignor in build_assignors(strategy)] == ["range", "cooperative-sticky"]


def test_a_name_that_no_client_has_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"linger\.mss.*Did you mean 'linger\.ms'"):
        resolve_config(PRODUCER_CONFIGS, {**SERVERS, "linger.mss": 1}, {})
    with pytest.raises(ConfigError, match=r"Did you mean 'linger_ms'"):
        resolve_config(PRODUCER_CONFIGS, SERVERS, {"linger_mss": 1})
    with pytest.raises(ConfigError, match=r"Did you mean 'bootstrap\.servers'"):
        resolve_config(PRODUCER_CONFIGS, {"bootstrap_servers": "a:1"}, {})
    with pytest.raises(ConfigError, match=r"no config '7'"):
        resolve_config(PRODUCER_CONFIGS, {**SERVERS, 7: 1}, {})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        resolve_config(PRODUCER_CONFIGS, {}, {})


def test_configs_of_other_clients_are_accepted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    shared = {
        **SERVERS,
        "group.id": "g",
        "value.serializer": "x.Y",
        "statistics.interval.ms": 5,
        "schema.registry.url": "u",
    }
    for _ in range(2):
        resolve_config(PRODUCER_CONFIGS, shared, {})
    assert messages(caplog, "barnabas.client") == [
        "these configs of other Kafka clients have no effect here:"
        " schema.registry.url, statistics.interval.ms, value.serializer"
    ]


def test_a_config_of_another_client_that_would_be_missed_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"queue\.buffering\.max\.ms is .* Here: set linger\.ms\."):
        resolve_config(PRODUCER_CONFIGS, {**SERVERS, "queue.buffering.max.ms": 1}, {})


def test_no_config_is_ours_and_foreign_at_the_same_time() -> None:
    ours = {*PRODUCER_CONFIGS.keys, *CONSUMER_CONFIGS.keys, *ADMIN_CONFIGS.keys}
    assert not ours & {*JAVA, *LIBRDKAFKA, *INSTEAD}
    assert not set(INSTEAD) & {*JAVA, *LIBRDKAFKA}
    named = {
        name.rstrip(".,;")
        for text in INSTEAD.values()
        if text.startswith("set ")
        for name in text.split()
        if "." in name[1:-1]
    }
    assert {name.partition("=")[0] for name in named} <= ours


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a:1,b:2", (("a", 1), ("b", 2))),
        (" a:1 , a:1 ", (("a", 1),)),
        ("PLAINTEXT://h:9092", (("h", 9092),)),
        ("[::1]:9092", (("::1", 9092),)),
    ],
)
def test_servers(text: str, pairs: tuple[tuple[str, int], ...]) -> None:
    assert parse_servers(text) == pairs


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:0", "a:65536", "a:b"])
def test_servers_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_servers(text)


def test_jaas_credentials_and_hidden_secrets() -> None:
    options = ClusterConfig.of(
        bootstrap_servers="a:1",
        security_protocol="sasl_plaintext",
        sasl_mechanism="PLAIN",
        sasl_jaas_config='org.apache.PlainLoginModule required username="u" password="p=";',
    )
    assert options.security == SecurityConfig(sasl=SaslConfig("PLAIN", "u", "p="))
    assert "'p='" not in repr(options.security)


@pytest.mark.parametrize(
    ("text", "ms"), [("PT1H", 3_600_000), ("P1DT2H3M4.5S", 93_784_500), ("P7D", 604_800_000), ("pt30m", 1_800_000)]
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


def test_reset_policies() -> None:
    assert ResetPolicy.parse("earliest").timestamp_at(0) == EARLIEST
    assert ResetPolicy.parse("Latest").timestamp_at(0) == LATEST
    assert ResetPolicy.parse("by_duration:PT1S").timestamp_at(10_000) == 9_000
    assert ResetPolicy.parse("none").is_none
    for wrong in ("first", "by_duration:1h", "by_duration:P"):
        with pytest.raises(ConfigError):
            ResetPolicy.parse(wrong)


async def _producer(**settings: object) -> AsyncProducer:
    return AsyncProducer(bootstrap_servers="a:1", **settings)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"enable_idempotence": True, "acks": "1"}, "acks=all"),
        ({"enable_idempotence": True, "max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"delivery_timeout_ms": 10, "linger_ms": 5, "request_timeout_ms": 6}, "at least linger.ms"),
        ({"compression_type": "brotli"}, "must be one of"),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, object], problem: str) -> None:
    import asyncio

    with pytest.raises(ConfigError, match=problem):
        asyncio.run(_producer(**settings))
