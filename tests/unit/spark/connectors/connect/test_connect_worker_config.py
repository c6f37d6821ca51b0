"""The properties of a worker."""

from __future__ import annotations

import pytest

from barnabas.spark.connectors.connect.worker_config import WorkerConfigError, parse_worker_config

GIVEN = {
    "group.id": "g",
    "config.storage.topic": "c",
    "status.storage.topic": "s",
    "storage.location": "/shared/",
}


def test_a_worker_of_kafka_connect_and_one_key_more() -> None:
    config = parse_worker_config(
        {
            **GIVEN,
            "bootstrap.servers": "b:1",
            "offset.storage.topic": "o",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "false",
            "sasl.mechanism": "PLAIN",
            "session.timeout.ms": "6000",
            "topic.tracking.enable": "FALSE",
        }
    )
    assert (config.group_id, config.config_storage_topic, config.status_storage_topic) == ("g", "c", "s")
    assert config.client == {"bootstrap.servers": "b:1", "sasl.mechanism": "PLAIN"}
    assert (config.session_timeout_ms, config.heartbeat_interval_ms, config.topic_tracking) == (6000, 3000, False)
    assert (config.storage_location, config.listener) == ("/shared", "http://127.0.0.1:8083")
    assert [name for name, _ in config.unused] == ["offset.storage.topic"]
    assert config.properties["key.converter.schemas.enable"] == "false"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"group.id": ""}, "needs group.id"),
        ({"grup.id": "g"}, "did you mean group.id?"),
        ({"listeners": "http://:1,http://:2"}, "listeners must be one address"),
        ({"session.timeout.ms": "x"}, "session.timeout.ms must be a number"),
        ({"session.timeout.ms": "3000"}, "must be smaller than session.timeout.ms"),
        ({"topic.tracking.enable": "yes"}, "must be true or false"),
        ({"consumer.auto.offset.reset": "none"}, "consumer.auto.offset.reset must be earliest or latest"),
    ],
)
def test_a_wrong_setting_is_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(WorkerConfigError, match=words.replace("?", r"\?")):
        parse_worker_config({**GIVEN, **given})


def test_the_settings_of_consumers_and_producers_are_those_of_the_connectors() -> None:
    given = {
        "consumer.auto.offset.reset": "latest",
        "consumer.isolation.level": "read_uncommitted",
        "consumer.sasl.jaas.config": "x password=s3cr3t;",
        "producer.compression.type": "zstd",
    }
    without_effect = {
        "consumer.enable.auto.commit": "the position is in Spark's checkpoint",
        "consumer.key.deserializer": "keys are always bytes",
        "consumer.metric.reporters": "no consumer here has this setting",
        "producer.transactional.id": "each task attempt needs an id of its own",
        "producer.max.poll.records": "no producer here has this setting",
        "admin.retries": "use producer.*",
        "consumer.no.such.key": "There is no config 'consumer.no.such.key'",
        "producer.linger.msec": "Did you mean 'producer.linger.ms'?",
        "producer.message.timeout.ms": "set delivery.timeout.ms",
        "admin.retry.backof.ms": "Did you mean 'admin.retry.backoff.ms'?",
        "producer.acks": "use producer.override.acks with delivery=at-least-once",
    }
    config = parse_worker_config({**GIVEN, **given, **dict.fromkeys(without_effect, "1")})
    assert config.client_overrides == {name.replace(".", ".override.", 1): text for name, text in given.items()}
    reasons = dict(config.unused)
    assert list(reasons) == list(without_effect)
    assert all(words in reasons[name] for name, words in without_effect.items()), reasons
    assert config.client == {"bootstrap.servers": "localhost:9092"}
    assert "s3cr3t" not in f"{config}{config!r}"
