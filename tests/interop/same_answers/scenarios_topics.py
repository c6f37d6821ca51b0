"""Table: scenarios about the cluster and its topics. Each is played to both brokers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from uuid import UUID

from barnabas.protocol.wire.apis import PRIVATE_FROM
from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.wire.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.protocol.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.interop.same_answers.talk import Talk

NOWHERE = UUID(int=0xDEAD)
NO_ID = UUID(int=0)
_NO_CONFIGS: Mapping[str, str | None] = MappingProxyType({})


def api_versions(talk: Talk) -> None:
    for software in ("", "a b", "-x", "x-", "ok.1", "a" * 300, "a+b", "ä"):
        request = ApiVersionsRequest(client_software_name=software, client_software_version="1")
        response = talk.quietly(request, 3)
        talk.note(f"software {software[:9]!r}", "closed" if response is None else response.error_code)
    talk.hang_up()
    response = talk.quietly(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
    talk.note("features", [(f.name, f.min_version, f.max_version) for f in response.supported_features])
    talk.note("finalized", {f.name: (f.min_version_level, f.max_version_level) for f in response.finalized_features})
    served = {k.api_key: (k.min_version, k.max_version) for k in response.api_keys if k.api_key < PRIVATE_FROM}
    talk.note("versions", served)
    unknown_version = bytes.fromhex("0012 7fff 00000001 0001 61".replace(" ", ""))
    talk.raw("ApiVersions of an unknown version", unknown_version)
    talk.raw("ApiVersions of an unknown version, flexible header", unknown_version + b"\x00\x02a\x02b\x00")
    for key in (4, 52, 88, 999, -1):
        talk.raw(f"API {key}", key.to_bytes(2, "big", signed=True) + bytes.fromhex("0000 00000001 0001 61 00000000"))
    for key in (0, 1, 2, 3, 8, 9, 10, 11, 12, 14, 19, 20, 22, 32, 36, 60, 75):
        for version in (-1, 99):
            header = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
            talk.raw(f"API {key} v{version}", header + bytes.fromhex("00000001 0001 61 00000000 00000000"))
    for version in (0, 1, 2):
        talk.raw(f"Produce v{version}", bytes.fromhex(f"0000 {version:04x} 00000001 0001 61 ffff 000003e8 00000000"))
    talk.raw("an empty frame", b"")
    talk.raw("a negative length", bytes.fromhex("ffffffff"), length=False)
    talk.raw("a huge length", bytes.fromhex("7fffffff"), length=False)
    talk.raw("only half a header", bytes.fromhex("0012 00"))
    talk.raw("a client id that is longer than the frame", bytes.fromhex("0012 0000 00000001 7fff 61"))
    talk.raw("a null client id", bytes.fromhex("0003 0001 00000001 ffff 00000000"))
    talk.raw("an array longer than the frame", bytes.fromhex("0003 0001 00000001 ffff 7fffffff"))
    talk.raw("a negative array", bytes.fromhex("0003 0000 00000001 ffff fffffffe"))
    talk.raw("a TLS hello", bytes.fromhex("16030100c6010000c20303") + bytes(190), length=False)
    talk.raw("an HTTP request", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", length=False)


def metadata(talk: Talk) -> None:
    here = talk.topic("here", 2)
    here_id = talk.topic_id(here)

    def ask(label: str, versions: tuple[int, ...], *topics: MetadataRequestTopic, create: bool = False) -> None:
        for version in versions:
            request = MetadataRequest(topics=list(topics), allow_auto_topic_creation=create or version < 4)
            talk.ask(label, request, version)

    def named(name: str) -> MetadataRequestTopic:
        return MetadataRequestTopic(name=name)

    missing = talk.name("missing")
    ask("a topic", (4, 8, 9, 10, 12, 13), named(here))
    ask("an unknown topic", (4, 8, 10, 12, 13), named(missing))
    ask("both", (4, 12), named(here), named(missing))
    ask("twice", (4, 12), named(here), named(here))
    ask("the unknown twice", (4, 12), named(missing), named(missing))
    ask("no topics", (4, 12))
    for bad in ("", ".", "..", "a b", "a/b", "x" * 250, "ä"):
        ask(f"bad name {bad[:5]!r}", (4, 12), named(bad))
        ask(f"bad name {bad[:5]!r}, create", (4, 12), named(bad), create=True)
    for version in (12, 13):
        ask("by id", (version,), MetadataRequestTopic(topic_id=here_id, name=None))
        ask("by unknown id", (version,), MetadataRequestTopic(topic_id=NOWHERE, name=None))
        ask("by id and name", (version,), MetadataRequestTopic(topic_id=here_id, name=here))
        ask("by neither", (version,), MetadataRequestTopic(topic_id=NO_ID, name=None))
        ask("ids and names", (version,), MetadataRequestTopic(topic_id=here_id, name=None), named(here))
        ask("id twice", (version,), *[MetadataRequestTopic(topic_id=here_id, name=None)] * 2)
    for version in (10, 11):
        ask("by id too early", (version,), MetadataRequestTopic(topic_id=here_id, name=None))
        ask("by id and name too early", (version,), MetadataRequestTopic(topic_id=here_id, name=here))
        ask("by neither too early", (version,), MetadataRequestTopic(topic_id=NO_ID, name=None))
    operations = MetadataRequest(
        topics=[named(here), named(missing)],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
        allow_auto_topic_creation=False,
    )
    talk.each("operations", operations, (8, 10))
    operations = MetadataRequest(topics=[named(here)], include_topic_authorized_operations=True)
    talk.each("topic operations", operations, (11, 12, 13))
    for version in (0, 1, 5, 12):
        response = talk.quietly(MetadataRequest(topics=[] if version == 0 else None), version)
        mine = [topic for topic in response.topics if topic.name == here]
        talk.note(f"all topics, v{version}", talk.plain(mine))
    made = talk.name("made")
    first = talk.quietly(MetadataRequest(topics=[named(made)], allow_auto_topic_creation=True), 9).topics[0]
    talk.note("auto-created, first answer has no partitions or all", first.error_code in (0, 5, 3))
    talk.wait_led(made, 1)
    talk.topic_id(made)
    ask("auto-created", (9, 12), named(made))
    ask("v3 creates", (3,), named(talk.name("made2")))


def describe_cluster(talk: Talk) -> None:
    for operations in (False, True):
        request = DescribeClusterRequest(include_cluster_authorized_operations=operations)
        talk.each(f"operations {operations}", request, (0, 1, 2))
    for endpoint_type in (0, 1, 2, 3):
        talk.each(f"endpoint type {endpoint_type}", DescribeClusterRequest(endpoint_type=endpoint_type), (1, 2))
    talk.ask("fenced", DescribeClusterRequest(include_fenced_brokers=True), 2)


def describe_topic_partitions(talk: Talk) -> None:
    names = [talk.topic("aa", 3), talk.topic("bb", 2)]

    def ask(label: str, *wanted: str, limit: int = 2000, cursor: Cursor | None = None) -> None:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in wanted], response_partition_limit=limit, cursor=cursor
        )
        talk.ask(label, request, 0)

    ask("both", *names)
    ask("in reverse", *reversed(names))
    ask("twice", names[0], names[0])
    ask("unknown", talk.name("zz"), names[0])
    ask("bad name", "a b", names[0])
    ask("empty name", "")
    for limit in (-1, 0, 1, 2, 3, 4, 5):
        ask(f"limit {limit}", *names, limit=limit)
    for index in (-1, 0, 1, 2, 3, 7):
        ask(f"cursor {index}", *names, cursor=Cursor(topic_name=names[0], partition_index=index))
    ask("cursor in the second", *names, cursor=Cursor(topic_name=names[1], partition_index=1))
    ask("cursor elsewhere", *names, cursor=Cursor(topic_name=talk.name("ab"), partition_index=0))
    ask("cursor behind all", *names, cursor=Cursor(topic_name=talk.name("zz"), partition_index=0))
    ask("cursor and limit", *names, limit=2, cursor=Cursor(topic_name=names[0], partition_index=1))
    ask("limit and unknown", names[0], talk.name("az"), names[1], limit=3)


def create_topics(talk: Talk) -> None:
    def ask(label: str, *topics: CreatableTopic, versions: tuple[int, ...] = (7,), check: bool = True) -> None:
        talk.each(label, CreateTopicsRequest(topics=list(topics), validate_only=check), versions)

    def topic(
        name: str = "t", partitions: int = 1, replicas: int = 1, configs: Mapping[str, str | None] = _NO_CONFIGS
    ) -> CreatableTopic:
        settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        return CreatableTopic(
            name=talk.name(name), num_partitions=partitions, replication_factor=replicas, configs=settings
        )

    def placed(*replicas: tuple[int, list[int]], partitions: int = -1, factor: int = -1) -> CreatableTopic:
        assignments = [CreatableReplicaAssignment(partition_index=p, broker_ids=brokers) for p, brokers in replicas]
        return CreatableTopic(
            name=talk.name("p"), num_partitions=partitions, replication_factor=factor, assignments=assignments
        )

    here = talk.topic("here")
    exists = CreatableTopic(name=here, num_partitions=1, replication_factor=1)
    ask("fine", topic(), versions=(2, 3, 4, 5, 6, 7))
    ask("exists", exists, versions=(2, 4, 5, 7))
    ask("one of three exists", exists, topic("a"), topic("b"))
    ask("twice", topic("a"), topic("a"), topic("b"))
    for bad in ("", ".", "..", "a b", "a/b", "x" * 250, "ä", "a\x00b"):
        ask(f"bad name {bad[:5]!r}", CreatableTopic(name=bad, num_partitions=1, replication_factor=1))
    for name in ("__consumer_offsets", "__cluster_metadata"):
        ask(f"internal {name}", CreatableTopic(name=name, num_partitions=1, replication_factor=1))
    colliding = talk.topic("col.lide_x")
    ask("colliding name", CreatableTopic(name=colliding.replace(".", "_"), num_partitions=1, replication_factor=1))
    for partitions in (0, -1, -2, -5, 10_001):
        ask(f"{partitions} partitions", topic(partitions=partitions))
    for replicas in (0, -1, -2, 2, 5, 32767):
        ask(f"{replicas} replicas", topic(replicas=replicas))
    ask("partitions and replicas both wrong", topic(partitions=0, replicas=5))
    ask("defaults", topic(partitions=-1, replicas=-1), versions=(4, 5, 7))
    ask("defaults before v4", topic(partitions=-1, replicas=-1), versions=(3,))
    cases: dict[str, dict[str, str | None]] = {
        "unknown": {"no_such_config": "1"},
        "not a number": {"retention_ms": "soon"},
        "too small": {"retention_ms": "-2"},
        "empty": {"retention_ms": ""},
        "null": {"retention_ms": None},
        "policy": {"cleanup_policy": "shred"},
        "empty policy": {"cleanup_policy": ""},
        "both policies": {"cleanup_policy": "compact,delete"},
        "doubled policy": {"cleanup_policy": "delete,delete"},
        "codec": {"compression_type": "brotli"},
        "codec case": {"compression_type": "GZIP"},
        "boolean": {"preallocate": "maybe"},
        "boolean case": {"preallocate": "TRUE"},
        "spaces": {"retention_ms": " 5000 "},
        "plus": {"retention_ms": "+5000"},
        "underscore": {"retention_ms": "5_000"},
        "segment": {"segment_bytes": "14"},
        "internal segment": {"internal_segment_bytes": "1024"},
        "ratio": {"min_cleanable_dirty_ratio": "1.5"},
        "nan": {"min_cleanable_dirty_ratio": "NaN"},
        "lag": {"min_compaction_lag_ms": "10", "max_compaction_lag_ms": "5"},
        "timestamp type": {"message_timestamp_type": "logappendtime"},
        "isr": {"min_insync_replicas": "0"},
        "isr over replicas": {"min_insync_replicas": "3"},
        "remote": {"remote_storage_enable": "true"},
        "local retention": {"local_retention_ms": "10", "retention_ms": "5"},
        "max message": {"max_message_bytes": "-1"},
        "int overflow": {"max_message_bytes": "2147483648"},
        "long overflow": {"retention_ms": "9223372036854775808"},
        "gone": {"message_format_version": "2.0"},
        "zstd level": {"compression_zstd_level": "99"},
        "gzip level": {"compression_gzip_level": "0"},
        "gzip default": {"compression_gzip_level": "-1"},
        "lz4 level": {"compression_lz4_level": "18"},
        "throttled": {"leader_replication_throttled_replicas": "x"},
        "throttled all": {"leader_replication_throttled_replicas": "*"},
        "good": {"retention_ms": "5000", "cleanup_policy": "compact", "compression_type": "zstd"},
    }
    for label, config in cases.items():
        ask(f"config {label}", topic(configs=config), versions=(2, 7))
    ask(
        "a config twice",
        CreatableTopic(
            name=talk.name("t"),
            num_partitions=1,
            replication_factor=1,
            configs=[
                CreatableTopicConfig(name="retention.ms", value="1"),
                CreatableTopicConfig(name="retention.ms", value="2"),
            ],
        ),
    )
    ask("placed", placed((0, [1]), (1, [1])))
    ask("placed on a stranger", placed((0, [7])))
    ask("placed twice on one", placed((0, [1, 1])))
    ask("placed on a negative", placed((0, [-1])))
    ask("placed nowhere", placed((0, [])))
    ask("placed with a hole", placed((0, [1]), (2, [1])))
    ask("placed from one", placed((1, [1])))
    ask("placed doubly", placed((0, [1]), (0, [1])))
    ask("placed unevenly", placed((0, [1]), (1, [1, 2])))
    ask("placed and counted", placed((0, [1]), partitions=1, factor=1))
    ask("placed and partitions", placed((0, [1]), partitions=1))
    ask("placed and replicas", placed((0, [1]), factor=1))
    ask("placed and replicas 5", placed((0, [1]), factor=5))
    ask("none")
    made = talk.ask("made", CreateTopicsRequest(topics=[topic("really", 2)]), 5)
    assert made is not None
    talk.wait_led(talk.name("really"), 2)


def create_partitions(talk: Talk) -> None:
    here = talk.topic("here", 2)

    def ask(label: str, count: int, *brokers: list[int], name: str = here, check: bool = True) -> None:
        assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in brokers] if brokers else None
        topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
        talk.each(label, CreatePartitionsRequest(topics=[topic], timeout_ms=9000, validate_only=check), (0, 3))

    for count in (-5, -1, 0, 1, 2, 3, 20_000):
        ask(f"to {count}", count)
    ask("unknown", 3, name=talk.name("missing"))
    ask("bad name", 3, name="a b")
    ask("empty name", 3, name="")
    ask("placed", 4, [1], [1])
    ask("placed too few", 4, [1])
    ask("placed too many", 3, [1], [1])
    ask("placed on a stranger", 3, [9])
    ask("placed twice", 3, [1, 1])
    ask("placed nowhere", 3, [])
    ask("placed unevenly", 4, [1], [1, 2])
    twice = [CreatePartitionsTopic(name=here, count=3, assignments=None)] * 2
    talk.ask("twice", CreatePartitionsRequest(topics=twice, timeout_ms=9000), 3)
    ask("empty assignments", 3)
    empty = CreatePartitionsTopic(name=here, count=3, assignments=[])
    talk.ask("no assignments", CreatePartitionsRequest(topics=[empty], timeout_ms=9000, validate_only=True), 3)
    talk.ask("nothing", CreatePartitionsRequest(topics=[], timeout_ms=9000), 3)
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=here, count=4, assignments=None)], timeout_ms=9000
    )
    talk.ask("really", request, 3)
    talk.wait_led(here, 4)
    ask("now less", 3)


def delete_topics(talk: Talk) -> None:
    a, b = talk.topic("a"), talk.topic("b")
    a_id, b_id = talk.topic_id(a), talk.topic_id(b)
    for version in (1, 3, 4, 5):
        talk.ask("unknown", DeleteTopicsRequest(topic_names=[talk.name("missing")], timeout_ms=9000), version)
        talk.ask("bad name", DeleteTopicsRequest(topic_names=["a b", ""], timeout_ms=9000), version)
    talk.ask("twice", DeleteTopicsRequest(topic_names=[a, a], timeout_ms=9000), 5)
    talk.ask("nothing", DeleteTopicsRequest(topic_names=[], timeout_ms=9000), 5)

    def ask(label: str, *states: DeleteTopicState) -> None:
        talk.ask(label, DeleteTopicsRequest(topics=list(states), timeout_ms=9000), 6)

    ask("unknown", DeleteTopicState(name=talk.name("missing")))
    ask("unknown id", DeleteTopicState(topic_id=NOWHERE))
    ask("neither", DeleteTopicState())
    ask("name and id", DeleteTopicState(name=a, topic_id=a_id))
    ask("name, and its id", DeleteTopicState(name=a), DeleteTopicState(topic_id=a_id))
    ask("id twice", DeleteTopicState(topic_id=b_id), DeleteTopicState(topic_id=b_id))
    ask("by id", DeleteTopicState(topic_id=b_id))
    ask("by name", DeleteTopicState(name=talk.topic("c")))


def elect_leaders(talk: Talk) -> None:
    here = talk.topic("here", 2)
    for election_type in (0, 1, 2):
        for name, partitions in ((here, [0, 1]), (here, [5]), (talk.name("missing"), [0]), (here, [0, 0])):
            request = ElectLeadersRequest(
                election_type=election_type, topic_partitions=[TopicPartitions(topic=name, partitions=partitions)]
            )
            talk.each(f"type {election_type} {name.partition('.')[0]} {partitions}", request, (1, 2))
    talk.ask("of all, v0", ElectLeadersRequest(topic_partitions=None), 0)
    talk.ask("none", ElectLeadersRequest(topic_partitions=[]), 2)


SCENARIOS = (
    api_versions,
    metadata,
    describe_cluster,
    describe_topic_partitions,
    create_topics,
    create_partitions,
    delete_topics,
    elect_leaders,
)
