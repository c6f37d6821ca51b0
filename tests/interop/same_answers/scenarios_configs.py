"""Table: scenarios about configs, log directories and the quorum. Each is played to both brokers."""

from __future__ import annotations

from barnabas.protocol.wire.messages import alter_configs as legacy
from barnabas.protocol.wire.messages import incremental_alter_configs as incremental
from barnabas.protocol.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.protocol.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.interop.same_answers.talk import Talk, batch

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
_PLACES = frozenset(
    {
        "listeners", "advertised.listeners", "log.dirs", "log.dir", "controller.quorum.voters", "node.id",
        "controller.quorum.bootstrap.servers", "process.roles", "controller.listener.names",
        "listener.security.protocol.map",
    }
)  # fmt: skip
"""Broker configs whose values say where this very broker is."""


def describe(talk: Talk, label: str, kind: int, name: str, keys: list[str] | None, versions: tuple[int, ...]) -> None:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    for version in versions:
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=version >= 3
        )
        response = talk.quietly(request, version)
        for result in response.results:
            for config in result.configs:
                if config.name in _PLACES:
                    config.value, config.synonyms = "(its own)", []
            rows = {config.name: talk.plain(config) for config in result.configs}
            talk.note(f"{label} [v{version}]", {"error": result.error_code, "name": talk.plain(result.resource_name)})
            for config_name, row in rows.items():
                talk.note(f"{label}, {config_name} [v{version}]", row)
            documented = [c.name for c in result.configs if version >= 3 and not c.documentation]
            talk.note(f"{label}, undocumented [v{version}]", documented)


def describe_configs(talk: Talk) -> None:
    plain, changed = talk.topic("plain"), talk.topic("changed", cleanup_policy="compact", max_message_bytes="5000")
    describe(talk, "plain topic", TOPIC, plain, None, (1, 3, 4))
    describe(talk, "changed topic", TOPIC, changed, None, (1, 4))
    describe(talk, "some keys", TOPIC, changed, ["cleanup.policy", "no.such", "retention.ms"], (1, 4))
    describe(talk, "no keys", TOPIC, changed, [], (1, 4))
    describe(talk, "unknown topic", TOPIC, talk.name("missing"), None, (1, 4))
    describe(talk, "bad topic name", TOPIC, "a b", None, (4,))
    describe(talk, "empty topic name", TOPIC, "", None, (4,))
    describe(talk, "broker", BROKER, "1", None, (1, 4))
    describe(talk, "broker, some keys", BROKER, "1", ["log.retention.ms", "no.such", "message.max.bytes"], (4,))
    describe(talk, "another broker", BROKER, "7", None, (4,))
    describe(talk, "a broker's name", BROKER, "x", None, (4,))
    describe(talk, "default broker", BROKER, "", None, (4,))
    describe(talk, "group", GROUP, talk.name("g"), None, (4,))
    describe(talk, "empty group", GROUP, "", None, (4,))
    describe(talk, "metrics", METRICS, talk.name("m"), None, (4,))
    describe(talk, "empty metrics", METRICS, "", None, (4,))
    describe(talk, "logger of another", LOGGER, "7", None, (4,))
    for kind in (0, 1, 3, 99):
        describe(talk, f"type {kind}", kind, "x", None, (4,))
    talk.ask("nothing", DescribeConfigsRequest(resources=[]), 4)
    twice = [DescribeConfigsResource(resource_type=TOPIC, resource_name=plain, configuration_keys=["retention.ms"])] * 2
    talk.ask("twice", DescribeConfigsRequest(resources=twice), 4)


def incremental_alter(talk: Talk) -> None:
    topic = talk.topic("topic")

    def ask(
        label: str,
        *changes: tuple[str, int, str | None],
        kind: int = TOPIC,
        name: str = topic,
        check: bool = True,
        version: int = 1,
    ) -> None:
        configs = [incremental.AlterableConfig(name=n, config_operation=op, value=v) for n, op, v in changes]
        resource = incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=check)
        talk.ask(label, request, version)

    ask("fine", ("retention.ms", SET, "5000"), version=0)
    ask("fine", ("retention.ms", SET, "5000"))
    ask("unknown config", ("no.such", SET, "5000"))
    ask("unknown config deleted", ("no.such", DELETE, None))
    ask("bad value", ("retention.ms", SET, "x"))
    ask("null", ("retention.ms", SET, None))
    ask("delete", ("retention.ms", DELETE, None))
    ask("delete with a value", ("retention.ms", DELETE, "7"))
    ask("append to a number", ("retention.ms", APPEND, "7"))
    ask("append", ("cleanup.policy", APPEND, "compact"))
    ask("append what is there", ("cleanup.policy", APPEND, "delete"))
    ask("append rubbish", ("cleanup.policy", APPEND, "shred"))
    ask("append null", ("cleanup.policy", APPEND, None))
    ask("subtract", ("cleanup.policy", SUBTRACT, "delete"))
    ask("subtract what is not there", ("cleanup.policy", SUBTRACT, "compact"))
    ask("operation 9", ("cleanup.policy", 9, "compact"))
    ask("operation -1", ("cleanup.policy", -1, "compact"))
    ask("twice", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    ask("one good, one bad", ("retention.ms", SET, "1"), ("segment.ms", SET, "x"))
    ask("nothing")
    ask("unknown topic", ("retention.ms", SET, "1"), name=talk.name("missing"))
    ask("bad topic name", ("retention.ms", SET, "1"), name="a b")
    ask("empty topic name", ("retention.ms", SET, "1"), name="")
    ask("broker", ("log.cleaner.threads", SET, "2"), kind=BROKER, name="1")
    ask("broker, read-only", ("node.id", SET, "2"), kind=BROKER, name="1")
    ask("broker, read-only port", ("queued.max.requests", SET, "2"), kind=BROKER, name="1")
    ask("broker, unknown", ("no.such", SET, "2"), kind=BROKER, name="1")
    ask("broker, bad value", ("log.cleaner.threads", SET, "x"), kind=BROKER, name="1")
    ask("broker, out of range", ("log.cleaner.threads", SET, "0"), kind=BROKER, name="1")
    ask("broker 7", ("log.cleaner.threads", SET, "2"), kind=BROKER, name="7")
    ask("broker x", ("log.cleaner.threads", SET, "2"), kind=BROKER, name="x")
    ask("broker -1", ("log.cleaner.threads", SET, "2"), kind=BROKER, name="-1")
    ask("default broker", ("log.cleaner.threads", SET, "2"), kind=BROKER, name="")
    ask("default broker, per-broker config", ("listener.security.protocol.map", SET, "A:B"), kind=BROKER, name="")
    ask("group", ("consumer.session.timeout.ms", SET, "50000"), kind=GROUP, name=talk.name("g"))
    ask("group, unknown", ("no.such", SET, "1"), kind=GROUP, name=talk.name("g"))
    ask("group, out of range", ("consumer.session.timeout.ms", SET, "1"), kind=GROUP, name=talk.name("g"))
    ask("empty group", ("consumer.session.timeout.ms", SET, "50000"), kind=GROUP, name="")
    ask("metrics", ("interval.ms", SET, "1000"), kind=METRICS, name=talk.name("m"))
    ask("metrics, unknown", ("no.such", SET, "1000"), kind=METRICS, name=talk.name("m"))
    ask("metrics, out of range", ("interval.ms", SET, "1"), kind=METRICS, name=talk.name("m"))
    ask("metrics, match", ("match", SET, "client_id=["), kind=METRICS, name=talk.name("m"))
    ask("empty metrics", ("interval.ms", SET, "1000"), kind=METRICS, name="")
    ask("logger, bad level", ("kafka.server", SET, "LOUD"), kind=LOGGER, name="1")
    ask("logger of another", ("kafka.server", SET, "INFO"), kind=LOGGER, name="7")
    for kind in (0, 1, 3, 99):
        ask(f"type {kind}", ("a", SET, "1"), kind=kind, name="x")
    twice = [incremental.AlterConfigsResource(resource_type=TOPIC, resource_name=topic)] * 2
    talk.ask("a resource twice", incremental.IncrementalAlterConfigsRequest(resources=twice), 1)
    talk.ask("no resources", incremental.IncrementalAlterConfigsRequest(resources=[]), 1)

    ask("really", ("retention.ms", SET, "5000"), ("cleanup.policy", APPEND, "compact"), check=False)
    talk.until(lambda: _value(talk, topic, "retention.ms") == "5000", "the config")
    describe(talk, "after", TOPIC, topic, ["retention.ms", "cleanup.policy"], (4,))
    ask("really back", ("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "delete"), check=False)
    talk.until(lambda: _value(talk, topic, "retention.ms") == "604800000", "the config")
    describe(talk, "after that", TOPIC, topic, ["retention.ms", "cleanup.policy"], (4,))


def _value(talk: Talk, topic: str, key: str) -> str | None:
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=[key])
    configs = talk.quietly(DescribeConfigsRequest(resources=[resource]), 4).results[0].configs
    value: str | None = configs[0].value
    return value


def legacy_alter(talk: Talk) -> None:
    topic = talk.topic("topic", max_message_bytes="5000")

    def ask(label: str, kind: int, name: str, check: bool = True, **configs: str | None) -> None:
        given = [legacy.AlterableConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()]
        resource = legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=given)
        for version in (0, 2) if check else (2,):
            talk.ask(label, legacy.AlterConfigsRequest(resources=[resource], validate_only=check), version)

    ask("fine", TOPIC, topic, retention_ms="1000")
    ask("unknown", TOPIC, topic, no_such="1000")
    ask("bad", TOPIC, topic, retention_ms="x")
    ask("null", TOPIC, topic, retention_ms=None)
    ask("unknown topic", TOPIC, talk.name("missing"), retention_ms="1")
    ask("bad topic", TOPIC, "a b", retention_ms="1")
    ask("empty topic", TOPIC, "", retention_ms="1")
    ask("broker", BROKER, "1", log_cleaner_threads="2")
    ask("broker 7", BROKER, "7", log_cleaner_threads="2")
    ask("read-only", BROKER, "1", node_id="2")
    ask("logger", LOGGER, "1", kafka="INFO")
    ask("type 77", 77, "x", kafka="INFO")
    ask("really", TOPIC, topic, check=False, retention_ms="1000")
    talk.until(lambda: _value(talk, topic, "retention.ms") == "1000", "the config")
    describe(talk, "after", TOPIC, topic, ["retention.ms", "max.message.bytes"], (4,))


def log_dirs(talk: Talk) -> None:
    here = talk.topic("here", 2)
    talk.fill(here, batch("a", at=1_700_000_000_000))
    for label, topics in {
        "both": [DescribableLogDirTopic(topic=here, partitions=[0, 1])],
        "unknown partition": [DescribableLogDirTopic(topic=here, partitions=[7])],
        "unknown topic": [DescribableLogDirTopic(topic=talk.name("missing"), partitions=[0])],
        "no partitions": [DescribableLogDirTopic(topic=here, partitions=[])],
        "nothing": [],
    }.items():
        for version in (1, 2, 3, 4, 5):
            response = talk.quietly(DescribeLogDirsRequest(topics=topics), version)
            for result in response.results:
                result.log_dir = "(its own)"
                result.total_bytes, result.usable_bytes = result.total_bytes > 0, result.usable_bytes > 0
            talk.note(f"{label} [v{version}]", talk.plain(response))
    all_of_them = talk.quietly(DescribeLogDirsRequest(topics=None), 4)
    mine = [topic for result in all_of_them.results for topic in result.topics if topic.name == here]
    talk.note("all", talk.plain(mine))


def alter_log_dirs(talk: Talk) -> None:
    """One directory only: where nothing can move, what is refused is the same."""
    here, long = talk.topic("here", 2), "x" * 214
    own = talk.quietly(DescribeLogDirsRequest(topics=None), 4).results[0].log_dir
    for label, path, topic, indexes in (
        ("where it lies", own, here, [0, 1]),
        ("unknown partition", own, here, [7]),
        ("below zero", own, here, [-1]),
        ("unknown topic", own, talk.name("missing"), [0]),
        ("empty name", own, "", [0]),
        ("long name", own, long, [0]),
        ("unknown directory", "/nowhere", here, [0]),
        ("unknown directory and topic", "/nowhere", talk.name("missing"), [0]),
        ("unknown directory, long name", "/nowhere", long, [0]),
        ("no directory", "", here, [0]),
        ("with a slash", own + "/", here, [0]),
        ("no partitions", own, here, []),
        ("twice", own, here, [0, 0]),
    ):
        topics = [AlterReplicaLogDirTopic(name=topic, partitions=indexes)]
        for version in (1, 2):
            request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
            talk.note(f"{label} [v{version}]", talk.plain(talk.quietly(request, version)))
    both = [
        AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=here, partitions=[0])])
        for path in (own, "/nowhere")
    ]
    for label, dirs in (("two directories", both), ("two directories, turned", both[::-1]), ("nothing", [])):
        talk.note(label, talk.plain(talk.quietly(AlterReplicaLogDirsRequest(dirs=dirs), 2)))


def config_resources(talk: Talk) -> None:
    talk.topic("here")
    for kinds in ([TOPIC], [BROKER], [LOGGER], [METRICS], [GROUP], [0], [99], [METRICS, GROUP]):
        response = talk.quietly(ListConfigResourcesRequest(resource_types=kinds), 1)
        mine = [r for r in response.config_resources if r.resource_type != TOPIC]
        talk.note(f"{kinds}", (response.error_code, talk.plain(mine)))
    talk.note("v0", talk.quietly(ListConfigResourcesRequest(), 0).error_code)


SCENARIOS = (describe_configs, incremental_alter, legacy_alter, log_dirs, alter_log_dirs, config_resources)
