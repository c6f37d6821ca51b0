"""Topics that a writer creates: the options of Connect, and the topics of a broker."""

from __future__ import annotations

import pytest

from barnabas.client.blocking import Admin
from barnabas.client.values import ConfigResource
from barnabas.spark.errors import OptionError, SinkError
from barnabas.spark.sink.options import parse_sink_options
from barnabas.spark.sink.topic_creation import TopicGroup, parse_topic_creation
from barnabas.spark.sink.topic_creator import TopicCreator
from barnabas.testing.embedded import EmbeddedBroker

GIVEN = {
    "topic.creation.default.partitions": "3",
    "topic.creation.default.replication.factor": "-1",
    "topic.creation.default.cleanup.policy": "compact",
    "topic.creation.groups": "Logs, rest",
    "topic.creation.Logs.include": r"shop\.log.*, audit",
    "topic.creation.Logs.exclude": r".*\.debug",
    "topic.creation.Logs.partitions": "1",
    "topic.creation.Logs.retention.ms": "1000",
    "topic.creation.rest.include": ".*log.*",
}


def test_a_topic_has_the_settings_of_the_first_group_that_matches() -> None:
    creation = parse_topic_creation(GIVEN)
    assert creation is not None
    shown = {topic: creation.group_of(topic) for topic in ("shop.log.a", "audit", "shop.log.debug", "orders")}
    settings = {topic: (group.partitions, group.replication_factor, group.configs) for topic, group in shown.items()}
    assert settings == {
        "shop.log.a": (1, -1, {"retention.ms": "1000"}),
        "audit": (1, -1, {"retention.ms": "1000"}),
        "shop.log.debug": (3, -1, {}),
        "orders": (3, -1, {"cleanup.policy": "compact"}),
    }
    assert creation.default == TopicGroup(3, -1, {"cleanup.policy": "compact"})
    assert parse_topic_creation({"topic": "t"}) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"topic.creation.default.partitions": "0"}, "a number from 1"),
        ({"topic.creation.default.replication.factor": "many"}, "a number from 1"),
        ({"topic.creation.other.partitions": "1"}, "names no group: the groups are default, logs, rest"),
        ({"topic.creation.rest.include": ""}, r"rest\.include must be given"),
        ({"topic.creation.rest.include": "("}, "no regular expression|is not a regular expression"),
        ({"topic.creation.default.include": "a"}, "leave include and exclude out"),
    ],
)
def test_wrong_settings_are_refused(change: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse_topic_creation({**GIVEN, **change})
    needed = {name: text for name, text in GIVEN.items() if name != "topic.creation.default.partitions"}
    with pytest.raises(OptionError, match=r"topic\.creation\.default\.partitions must be given"):
        parse_topic_creation(needed)


def test_a_writer_takes_the_settings() -> None:
    options = parse_sink_options({"kafka.bootstrap.servers": "b:1", **GIVEN})
    assert options.creation == parse_topic_creation(GIVEN)


def test_a_topic_is_created_once_and_an_existing_one_stays() -> None:
    creation = parse_topic_creation(GIVEN)
    assert creation is not None
    with EmbeddedBroker({"auto.create.topics.enable": "false"}) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("there", 2, 1)
            creator = TopicCreator(servers)
            try:
                for topic in ("orders", "there", "orders", "audit"):
                    creator.ensure(topic, creation)
                wrong = parse_topic_creation({**GIVEN, "topic.creation.default.replication.factor": "7"})
                assert wrong is not None
                with pytest.raises(SinkError, match="the topic more does not exist and cannot be created"):
                    creator.ensure("more", wrong)
            finally:
                creator.close()
            found = admin.describe_topics(["orders", "there", "audit"])
            assert {name: len(topic.partitions) for name, topic in found.items()} == {
                "orders": 3,
                "there": 2,
                "audit": 1,
            }
            resource = ConfigResource.topic("orders")
            entry = admin.describe_configs([resource], names=["cleanup.policy"])[resource].get("cleanup.policy")
            assert entry is not None and entry.value == "compact"
