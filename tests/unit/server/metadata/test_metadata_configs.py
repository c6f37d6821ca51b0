"""The config tables say what Kafka 4.3 says, and the view finds the value in effect."""

from __future__ import annotations

import pytest

from barnabas.core.config import REQUIRED, ConfigError, ConfigType, ConfigValue, UpdateMode
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.describe_configs import DescribeConfigsResourceResult
from barnabas.server.metadata.config_rules import (
    check_applied,
    check_broker_configs,
    check_client_metrics_configs,
    check_group_configs,
    check_topic_configs,
)
from barnabas.server.metadata.config_source import ConfigValueSource
from barnabas.server.metadata.config_view import ConfigView, development_defaults
from barnabas.server.metadata.configs.broker_barnabas import BARNABAS_KEYS
from barnabas.server.metadata.configs.broker_mirror import MIRROR_KEYS
from barnabas.server.metadata.configs.broker_zookeeper import ZOOKEEPER_KEYS
from barnabas.server.metadata.configs.tables import BROKER_CONFIGS, CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from barnabas.server.metadata.describe_configs import (
    DescribeOptions,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from barnabas.server.metadata.image.cluster import ClusterImage, MetadataProvenance
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.records.other import ConfigRecord

LONG_MAX = 2**63 - 1

TOPIC_DEFAULTS = {
    "segment.bytes": 1073741824,
    "segment.ms": 604800000,
    "segment.jitter.ms": 0,
    "segment.index.bytes": 10485760,
    "index.interval.bytes": 4096,
    "flush.messages": LONG_MAX,
    "file.delete.delay.ms": 60000,
    "cleanup.policy": ("delete",),
    "retention.ms": 604800000,
    "retention.bytes": -1,
    "max.message.bytes": 1048588,
    "compression.type": "producer",
    "compression.gzip.level": -1,
    "compression.zstd.level": 3,
    "compression.lz4.level": 9,
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": LONG_MAX,
    "message.timestamp.after.max.ms": 3600000,
    "min.cleanable.dirty.ratio": 0.5,
    "min.compaction.lag.ms": 0,
    "max.compaction.lag.ms": LONG_MAX,
    "delete.retention.ms": 86400000,
    "min.insync.replicas": 1,
    "unclean.leader.election.enable": False,
    "local.retention.ms": -2,
}
BROKER_DEFAULTS = {
    "log.flush.offset.checkpoint.interval.ms": 60000,
    "log.retention.check.interval.ms": 300000,
    "log.retention.hours": 168,
    "log.roll.hours": 168,
    "num.recovery.threads.per.data.dir": 2,
    "log.dir": ("/tmp/kafka-logs",),  # Kafka's default
    "log.cleaner.enable": True,
    "log.cleaner.threads": 1,
    "log.cleaner.backoff.ms": 15000,
    "log.cleaner.dedupe.buffer.size": 134217728,
    "num.partitions": 1,
    "default.replication.factor": 1,
    "auto.create.topics.enable": True,
    "replica.lag.time.max.ms": 30000,
    "replica.fetch.max.bytes": 1048576,
    "replica.fetch.wait.max.ms": 500,
    "num.replica.fetchers": 1,
    "replica.high.watermark.checkpoint.interval.ms": 5000,
    "auto.leader.rebalance.enable": True,
    "leader.imbalance.check.interval.seconds": 300,
    "replica.selector.class": None,
    "fetch.max.bytes": 57671680,
    "max.incremental.fetch.session.cache.slots": 1000,
    "controller.quorum.election.timeout.ms": 1000,
    "controller.quorum.fetch.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 2000,
    "broker.session.timeout.ms": 9000,
    "metadata.log.max.record.bytes.between.snapshots": 20971520,
    "metadata.max.idle.interval.ms": 500,
    "offsets.topic.num.partitions": 50,
    "offsets.topic.replication.factor": 3,
    "offsets.retention.minutes": 10080,
    "offset.metadata.max.bytes": 4096,
    "group.initial.rebalance.delay.ms": 3000,
    "group.min.session.timeout.ms": 6000,
    "group.max.session.timeout.ms": 1800000,
    "group.coordinator.threads": 4,
    "group.coordinator.append.linger.ms": -1,
    "group.consumer.assignors": ("uniform", "range"),
    "group.consumer.migration.policy": "bidirectional",
    "group.share.record.lock.duration.ms": 30000,
    "group.share.partition.max.record.locks": 2000,
    "transaction.state.log.num.partitions": 50,
    "transaction.max.timeout.ms": 900000,
    "transactional.id.expiration.ms": 604800000,
    "producer.id.expiration.ms": 86400000,
    "add.partitions.to.txn.retry.backoff.ms": 20,
    "num.io.threads": 8,
    "queued.max.requests": 500,
    "socket.request.max.bytes": 104857600,
    "connections.max.idle.ms": 600000,
    "ssl.enabled.protocols": ("TLSv1.2", "TLSv1.3"),
    "sasl.enabled.mechanisms": ("GSSAPI",),
    "authorizer.class.name": "",
    "quota.window.num": 11,
    "remote.log.storage.system.enable": False,
}


LINK_KEYS = ("mirror.name", "mirror.state", "mirror.support.unclean.leader.election")
"""The configs of cluster links, which Kafka does not have yet."""


def test_tables_have_every_config_of_kafka() -> None:
    assert (len(TOPIC_CONFIGS), len(BROKER_CONFIGS), len(GROUP_CONFIGS), len(CLIENT_METRICS_CONFIGS)) == (
        35 + len(LINK_KEYS),
        364 + len(ZOOKEEPER_KEYS) + len(BARNABAS_KEYS) + len(MIRROR_KEYS),  # Kafka 4, Kafka 3, ours
        17,
        3,
    )


@pytest.mark.parametrize(("name", "default"), TOPIC_DEFAULTS.items())
def test_topic_defaults(name: str, default: object) -> None:
    assert TOPIC_CONFIGS[name].default == default


@pytest.mark.parametrize(("name", "default"), BROKER_DEFAULTS.items())
def test_broker_defaults(name: str, default: object) -> None:
    assert BROKER_CONFIGS[name].default == default


@pytest.mark.parametrize("table", [TOPIC_CONFIGS, BROKER_CONFIGS, GROUP_CONFIGS, CLIENT_METRICS_CONFIGS])
def test_defaults_pass_their_own_validators_and_synonyms_exist(table: object) -> None:
    for key in table:  # type: ignore[attr-defined]
        if key.default is not REQUIRED and key.default is not None:
            assert key.parse(key.to_text(key.default)) == key.default, key.name
        assert key.doc.endswith("."), key.name
        assert all(synonym in BROKER_CONFIGS for synonym in key.synonyms), key.name


def test_update_modes() -> None:
    assert BROKER_CONFIGS["log.dirs"].update_mode is UpdateMode.READ_ONLY
    assert BROKER_CONFIGS["ssl.keystore.password"].update_mode is UpdateMode.PER_BROKER
    assert BROKER_CONFIGS["log.retention.ms"].update_mode is UpdateMode.CLUSTER_WIDE
    assert BROKER_CONFIGS["ssl.keystore.password"].is_sensitive
    assert sum(key.is_dynamic for key in BROKER_CONFIGS) == 103


def view(*settings: tuple[int, str, str, str], static: dict[str, str] | None = None, node_id: int = 1) -> ConfigView:
    """Settings are (resource type, resource, name, value)."""
    delta = ClusterDelta(ClusterImage())
    for kind, resource, name, value in settings:
        delta.apply(ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value))
    return ConfigView(delta.finish(MetadataProvenance()).configs, node_id=node_id, static=static or {})


@pytest.mark.parametrize(
    ("name", "text", "used"),
    [
        ("segment.bytes", "7", 14),  # Apache Kafka 3.9 has this lower bound
        ("compression.gzip.level", "12", 9),
        ("compression.gzip.level", "-1", -1),
        ("min.cleanable.dirty.ratio", "1.5", 1.0),
        ("retention.ms", "7", 7),
        ("retention.ms", "a week", 8),  # the broker's
        ("cleanup.policy", "shred", ("delete",)),  # the default
    ],
)
def test_stored_values_that_are_not_valid_are_replaced_and_new_ones_refused(
    name: str, text: str, used: ConfigValue
) -> None:
    stored = view((2, "t", name, text), (4, "", "log.retention.ms", "8"))
    assert stored.topic_value("t", name).value == used
    assert stored.topic("t")[name] == used
    is_valid = text in ("7", "-1") and name != "segment.bytes"
    assert stored.replaced_topic_values("t") == ({} if is_valid else {name: (text, used)})
    if not is_valid:
        with pytest.raises(ConfigError):
            stored.new_topic({name: text})


def test_a_small_segment_size_of_apache_kafka_3_stays_in_effect() -> None:
    """A follower that runs Kafka 3.9 refuses a fetch response larger than segment.bytes, and a response has the records
    of one segment. So with larger segments the leader would lose its followers."""
    stored = view((2, "t", "segment.bytes", "200000"))
    assert stored.topic_value("t", "segment.bytes").value == 200_000
    assert stored.replaced_topic_values("t") == {}
    with pytest.raises(ConfigError):
        stored.new_topic({"segment.bytes": "200000"})


def test_stored_broker_values_that_are_not_valid_are_replaced() -> None:
    stored = view((4, "", "log.segment.bytes", "200000"), (4, "1", "log.retention.ms", "?"), static={})
    assert stored.broker_value("log.segment.bytes").value == 1 << 20
    assert stored.topic_value("t", "segment.bytes").value == 200_000
    assert stored.broker_value("log.retention.ms").source is ConfigValueSource.DEFAULT_CONFIG


def test_topic_config_takes_precedence_over_broker_config_and_default() -> None:
    everywhere = view(
        (2, "t", "retention.ms", "1"),
        (4, "1", "log.retention.ms", "2"),
        (4, "", "log.retention.ms", "3"),
        static={"log.retention.minutes": "4"},
    )
    assert everywhere.topic_value("t", "retention.ms") == (1, ConfigValueSource.DYNAMIC_TOPIC_CONFIG)
    assert everywhere.topic_value("other", "retention.ms") == (2, ConfigValueSource.DYNAMIC_BROKER_CONFIG)
    default = view((4, "", "log.retention.ms", "3"), (4, "2", "log.retention.ms", "2"))
    assert default.topic_value("t", "retention.ms") == (3, ConfigValueSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    static = view(static={"log.retention.minutes": "4", "log.retention.hours": "9"})
    assert static.topic_value("t", "retention.ms") == (240_000, ConfigValueSource.STATIC_BROKER_CONFIG)
    assert view().topic_value("t", "retention.ms") == (604_800_000, ConfigValueSource.DEFAULT_CONFIG)


def test_all_values_are_typed() -> None:
    values = view((2, "t", "cleanup.policy", "compact,delete")).topic("t")
    assert values["cleanup.policy"] == ("compact", "delete")
    assert values["preallocate"] is False
    brokers = view((4, "1", "log.cleaner.threads", "3"), static={"num.io.threads": "16"}).broker()
    assert (brokers["log.cleaner.threads"], brokers["num.io.threads"], brokers["node.id"]) == (3, 16, None)
    assert view((32, "g", "consumer.session.timeout.ms", "50000")).group("g")["consumer.session.timeout.ms"] == 50000
    assert view().client_metrics("s")["interval.ms"] == 300_000


def entry(results: list[DescribeConfigsResourceResult], name: str) -> DescribeConfigsResourceResult:
    return next(result for result in results if result.name == name)


def synonyms(result: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in result.synonyms]


ALL = DescribeOptions(include_synonyms=True, include_documentation=True)


def test_describing_a_topic() -> None:
    seen = describe_topic(view((2, "t", "segment.bytes", "2000000"), (4, "", "log.segment.bytes", "3000000")), "t", ALL)
    assert len(seen) == 33  # internal.segment.bytes is not shown
    size = entry(seen, "segment.bytes")
    assert (size.value, size.config_source, size.config_type) == ("2000000", 1, ConfigType.INT)
    assert synonyms(size) == [
        ("segment.bytes", "2000000", 1),
        ("log.segment.bytes", "3000000", 3),
        ("log.segment.bytes", "1073741824", 5),
    ]
    assert size.documentation == TOPIC_CONFIGS["segment.bytes"].doc
    # As in Kafka: log.retention.hours alone does not show as a synonym of retention.ms.
    age = entry(seen, "retention.ms")
    assert (age.value, age.config_source, synonyms(age)) == ("604800000", 5, [])


def test_describing_a_broker() -> None:
    seen = describe_broker(
        view(
            (4, "1", "ssl.keystore.password", "secret"),
            (4, "", "log.cleaner.threads", "2"),
            static={"log.dirs": "/data", "node.id": "1", "my.plugin": "x"},
        ),
        ALL,
    )
    assert [result.name for result in seen] == sorted(result.name for result in seen)
    secret = entry(seen, "ssl.keystore.password")
    assert (secret.value, secret.is_sensitive, secret.config_source) == (None, True, 2)
    assert synonyms(secret) == [("ssl.keystore.password", None, 2)]
    dirs = entry(seen, "log.dirs")
    assert (dirs.value, dirs.config_source, dirs.read_only) == ("/data", 4, True)
    threads = entry(seen, "log.cleaner.threads")
    assert (threads.value, threads.read_only) == ("2", False)
    assert synonyms(threads) == [("log.cleaner.threads", "2", 3), ("log.cleaner.threads", "1", 5)]
    plugin = entry(seen, "my.plugin")
    assert (plugin.value, plugin.is_sensitive) == (None, True)
    assert not any(BROKER_CONFIGS[result.name].internal for result in seen if result.name in BROKER_CONFIGS)


def test_describe_returns_only_requested_configs() -> None:
    seen = describe_topic(view(), "t", DescribeOptions(names={"retention.ms"}, version=0))
    assert [(result.name, result.is_default, result.synonyms, result.documentation) for result in seen] == [
        ("retention.ms", True, [], None)
    ]


def test_describing_defaults_groups_and_metrics() -> None:
    configs = view(
        (4, "", "log.cleaner.threads", "2"),
        (32, "g", "share.heartbeat.interval.ms", "6000"),
        (16, "s", "metrics", "*"),
    )
    assert [(r.name, r.value, r.config_source) for r in describe_broker_defaults(configs, ALL)] == [
        ("log.cleaner.threads", "2", 3)
    ]
    beat = entry(describe_group(configs, "g", ALL), "share.heartbeat.interval.ms")
    assert synonyms(beat) == [
        ("share.heartbeat.interval.ms", "6000", 8),
        ("group.share.heartbeat.interval.ms", "5000", 5),
    ]
    assert entry(describe_client_metrics(configs, "s", ALL), "metrics").config_source == 7


def test_development_defaults_fit_the_cluster_and_respect_the_user() -> None:
    alone = development_defaults({"offsets.topic.replication.factor": "2"}, brokers=1)
    assert alone["offsets.topic.replication.factor"] == "2"
    assert alone["transaction.state.log.replication.factor"] == "1"
    assert alone["transaction.state.log.min.isr"] == "1"
    assert development_defaults({}, brokers=5)["share.coordinator.state.topic.replication.factor"] == "3"


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"nope": "1"}, "Unknown topic config name: nope"),
        ({"retention.ms": "-2"}, "Value must be at least -1"),
        ({"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "conflict topic config setting"),
        ({"leader.replication.throttled.replicas": "a"}, "must be the literal"),
        ({"segment.bytes": "1000"}, "Value must be at least 1048576"),
    ],
)
def test_invalid_topic_configs_are_rejected(configs: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_topic_configs(configs, view())


def test_tiered_topics() -> None:
    tiered = view(static={"remote.log.storage.system.enable": "true"})
    check_topic_configs({"remote.storage.enable": "true", "local.retention.ms": "1000"}, tiered)
    for extra, words in (
        ({"cleanup.policy": "compact"}, "only supports topics with cleanup.policy=delete"),
        ({"local.retention.ms": "700000000"}, "must not be more than"),
        ({"local.retention.ms": "-1"}, "must not be -1"),
    ):
        with pytest.raises(ConfigError, match=words):
            check_topic_configs({"remote.storage.enable": "true", **extra}, tiered)


def test_tiered_storage_is_disabled_only_together_with_the_copies() -> None:
    tiered = view(static={"remote.log.storage.system.enable": "true"})
    before = {"remote.storage.enable": "true"}
    with pytest.raises(ConfigError, match="without deleting remote data"):
        check_topic_configs({"remote.storage.enable": "false"}, tiered, before)
    check_topic_configs({"remote.log.delete.on.disable": "true"}, tiered, before)
    check_topic_configs({"remote.storage.enable": "false"}, tiered, {})


def test_without_further_copies_the_local_retention_is_the_total_one() -> None:
    tiered = view(static={"remote.log.storage.system.enable": "true"})
    read_only = {"remote.storage.enable": "true", "remote.log.copy.disable": "true"}
    check_topic_configs(read_only, tiered)
    with pytest.raises(ConfigError, match="identical value"):
        check_topic_configs({**read_only, "local.retention.ms": "1000"}, tiered)


@pytest.mark.parametrize(
    ("configs", "per_broker", "words"),
    [
        ({"log.dirs": "/x"}, True, "Cannot update these configs dynamically"),
        ({"ssl.keystore.location": "/x"}, True, "only per-listener"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, False, "at default cluster level"),
        ({"log.cleaner.threads": "-1"}, False, "Value must be at least 0"),
    ],
)
def test_invalid_broker_configs_are_rejected(configs: dict[str, str], per_broker: bool, words: str) -> None:
    with pytest.raises(KafkaError, match=words) as refusal:
        check_broker_configs(configs, per_broker=per_broker)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("configs", "per_broker"),
    [
        ({"listener.name.tls.ssl.keystore.location": "/x", "my.plugin": "1"}, True),
        ({"listener.name.sasl.plain.sasl.jaas.config": "x"}, True),
        ({"log.retention.ms": "5", "leader.replication.throttled.rate": "1000000"}, False),
    ],
)
def test_valid_broker_configs_pass_and_a_static_config_is_rejected(configs: dict[str, str], per_broker: bool) -> None:
    assert check_broker_configs(configs, per_broker=per_broker) is None
    with pytest.raises(KafkaError, match=r"Cannot update these configs dynamically.*node\.id"):
        check_broker_configs({**configs, "node.id": "7"}, per_broker=per_broker)


@pytest.mark.parametrize(
    "name",
    [
        "num.io.threads",
        "listener.name.tls.num.network.threads",
        "listener.name.x.max.connections.per.ip",
    ],
)
def test_configs_that_are_not_applied_are_rejected(name: str) -> None:
    with pytest.raises(KafkaError, match="Cannot update these configs dynamically") as refusal:
        check_applied({name: "7", "log.cleaner.threads": "2"}, {})
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    check_applied({name: "7"}, {name: "7"})  # as another implementation left it
    check_applied({name: None}, {name: "7"})


def test_configs_of_an_open_listener_are_fixed_but_for_its_stores_and_limits() -> None:
    mechanisms = {"listener.name.tls.sasl.enabled.mechanisms": "PLAIN"}
    check_applied(mechanisms, {}, ["OTHER"])  # read by a listener that is opened later
    with pytest.raises(KafkaError, match="create a new listener") as refusal:
        check_applied(mechanisms, {}, ["TLS"])
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    check_applied(mechanisms, mechanisms, ["TLS"])
    stores = {"listener.name.tls.ssl.keystore.location": "/x", "listener.name.tls.max.connections": "7"}
    check_applied(stores, {}, ["TLS"])


@pytest.mark.parametrize("text", ["h", "h:", "h:x", "h:1,:"])
def test_limits_of_connections_by_host_are_checked(text: str) -> None:
    with pytest.raises(KafkaError, match="does not have the form host:count"):
        check_broker_configs({"max.connections.per.ip.overrides": text}, per_broker=False)


def test_groups_and_metrics_have_bounds() -> None:
    check_group_configs({"share.auto.offset.reset": "by_duration:PT1H", "streams.num.standby.replicas": "2"}, view())
    for configs in (
        {"share.auto.offset.reset": "by_duration:1h"},
        {"streams.num.standby.replicas": "3"},
        {"consumer.heartbeat.interval.ms": "99999"},
        {"nope": "1"},
    ):
        with pytest.raises(ConfigError):
            check_group_configs(configs, view())
    check_client_metrics_configs({"interval.ms": "100"})
    with pytest.raises(KafkaError, match="between 100"):
        check_client_metrics_configs({"interval.ms": "99"})


@pytest.mark.parametrize(
    "pattern", ["client_id=(a)\\1", "client_id=(?=a)", "client_id=(a{0,100}){0,10}", "client_id=["]
)
def test_an_expression_that_could_hold_the_loop_is_refused_in_client_metrics(pattern: str) -> None:
    with pytest.raises(KafkaError, match="Illegal client matching pattern") as error:
        check_client_metrics_configs({"match": pattern})
    assert error.value.code is ErrorCode.INVALID_CONFIG
