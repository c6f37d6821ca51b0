# ruff: noqa: E501  # one row per setting reads better than folded rows
"""Table: the configs of the clients, with Kafka's names, defaults and meanings (Kafka 4.3).

Configs can be given with Kafka's names, or as Python keywords with underscores in place of dots:

    AsyncProducer({"bootstrap.servers": "localhost:9092", "linger.ms": 20})
    AsyncProducer(bootstrap_servers="localhost:9092", linger_ms=20)

Serializers, deserializers, interceptors, partitioners and listeners are objects, not class names: they are arguments of the
clients, not configs. `foreign_configs.py` has the names of other Kafka clients that are accepted without an effect.
"""

from __future__ import annotations

import difflib
import functools
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from barnabas.client.foreign_configs import INSTEAD, JAVA, LIBRDKAFKA, PREFIXES
from barnabas.client.oauth_configs import OAUTH_ROWS
from barnabas.core.config import (
    REQUIRED,
    ConfigDef,
    ConfigError,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    InRange,
    OneOf,
    RangeOrSpecial,
    Validator,
)
from barnabas.protocol.records.compression import PRODUCER_COMPRESSION_TYPES

log = logging.getLogger("barnabas.client")

_TYPES: Final = {
    "bool": ConfigType.BOOLEAN,
    "str": ConfigType.STRING,
    "int": ConfigType.INT,
    "long": ConfigType.LONG,
    "double": ConfigType.DOUBLE,
    "list": ConfigType.LIST,
    "class": ConfigType.CLASS,
    "password": ConfigType.PASSWORD,
    "object": ConfigType.CLASS,
}
_IMPORTANCE: Final = {"h": Importance.HIGH, "m": Importance.MEDIUM, "l": Importance.LOW}
_AT_LEAST_0: Final = InRange(0)

Row = tuple[str, str, Any, Validator | None, str, str]


def _keys(rows: Iterable[Row]) -> list[ConfigKey]:
    return [
        ConfigKey(name, _TYPES[type_], default, doc, validator, _IMPORTANCE[importance], is_object=type_ == "object")
        for name, type_, default, validator, importance, doc in rows
    ]


# fmt: off
# name, type, default, range, importance, description
_SHARED: Final[list[Row]] = [
    ("bootstrap.servers", "list", REQUIRED, None, "h", "host:port pairs to learn the cluster from; a few are enough, they need not be all brokers."),
    ("client.id", "str", "", None, "m", "A name for this client in the broker's logs, quotas and metrics."),
    ("client.dns.lookup", "str", "use_all_dns_ips", OneOf(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")), "m", "How host names become addresses; every address of a name is tried in turn."),
    ("connections.max.idle.ms", "long", 540_000, None, "m", "Connections unused for this long are closed."),
    ("metadata.max.age.ms", "long", 300_000, _AT_LEAST_0, "l", "Topics and leaders are asked for anew after this time, even when nothing failed."),
    ("metadata.recovery.strategy", "str", "rebootstrap", OneOf(("rebootstrap", "none"), ignore_case=True), "l", "What to do when no known broker can be reached: start over from bootstrap.servers, or fail (KIP-899)."),
    ("metadata.recovery.rebootstrap.trigger.ms", "long", 300_000, _AT_LEAST_0, "l", "Start over from bootstrap.servers when no metadata could be fetched for this long."),
    ("receive.buffer.bytes", "int", -1, InRange(-1), "m", "SO_RCVBUF of the sockets. -1 leaves it to the system, which makes it larger as a fetch needs it; the Java clients set 65536, or 32768 in a producer."),
    ("send.buffer.bytes", "int", -1, InRange(-1), "m", "SO_SNDBUF of the sockets. -1 leaves it to the system; the Java clients set 131072."),
    ("reconnect.backoff.ms", "long", 50, _AT_LEAST_0, "l", "The wait before connecting again to a broker that refused; it doubles with each failure."),
    ("reconnect.backoff.max.ms", "long", 1_000, _AT_LEAST_0, "l", "The longest such wait."),
    ("request.timeout.ms", "int", 30_000, _AT_LEAST_0, "m", "How long a request may stay unanswered before its connection is given up."),
    ("retry.backoff.ms", "long", 100, _AT_LEAST_0, "l", "The wait before a failed request is tried again; it doubles with each failure."),
    ("retry.backoff.max.ms", "long", 1_000, _AT_LEAST_0, "l", "The longest such wait."),
    ("socket.connection.setup.timeout.ms", "long", 10_000, None, "m", "How long a connection may take to be set up; it doubles with each failure."),
    ("socket.connection.setup.timeout.max.ms", "long", 30_000, None, "m", "The longest such time."),
    ("security.protocol", "str", "PLAINTEXT", OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), ignore_case=True), "m", "Whether to encrypt (SSL) and whether to authenticate with SASL."),
    ("sasl.mechanism", "str", "GSSAPI", None, "m", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, or GSSAPI with the extra gssapi."),
    ("sasl.username", "str", None, None, "m", "The SASL user name (librdkafka's name; sasl.jaas.config works too)."),
    ("sasl.password", "password", None, None, "m", "The SASL password (librdkafka's name; sasl.jaas.config works too)."),
    ("sasl.jaas.config", "password", None, None, "m", "Java's form of the SASL credentials; username, password and tokenauth are read out of it."),
    ("sasl.kerberos.service.name", "str", None, None, "m", "The first component of the Kerberos principals of the brokers."),
    ("sasl.kerberos.keytab", "str", None, None, "m", "The key table of the client (librdkafka's name; keyTab in sasl.jaas.config works too)."),
    ("sasl.kerberos.principal", "str", None, None, "m", "The Kerberos principal of the client (librdkafka's name; principal in sasl.jaas.config works too)."),
    ("ssl.ca.location", "str", None, None, "m", "PEM file of the certificate authorities to trust (librdkafka's name)."),
    ("ssl.truststore.location", "str", None, None, "m", "The same, by Java's name."),
    ("ssl.truststore.certificates", "password", None, None, "m", "The certificate authorities to trust, as PEM text."),
    ("ssl.certificate.location", "str", None, None, "m", "PEM file of the client's own certificate chain (librdkafka's name)."),
    ("ssl.key.location", "str", None, None, "m", "PEM file of the client's private key (librdkafka's name)."),
    ("ssl.keystore.location", "str", None, None, "m", "The file that holds the client's private key and certificate chain."),
    ("ssl.keystore.certificate.chain", "password", None, None, "m", "The client's certificate chain, as PEM text."),
    ("ssl.keystore.key", "password", None, None, "m", "The client's private key, as PEM text."),
    ("ssl.keystore.type", "str", "PEM", None, "m", "PEM, PKCS12 (needs barnabas[tls]) or JKS."),
    ("ssl.keystore.password", "password", None, None, "m", "The password of a PKCS12 or JKS key store."),
    ("ssl.truststore.type", "str", "PEM", None, "m", "PEM, PKCS12 (needs barnabas[tls]) or JKS."),
    ("ssl.truststore.password", "password", None, None, "m", "The password of a PKCS12 or JKS trust store."),
    ("ssl.enabled.protocols", "list", "", None, "m", "TLSv1.2, TLSv1.3: the versions to speak; empty: those of the Python that runs."),
    ("ssl.key.password", "password", None, None, "m", "The password of the private key."),
    ("ssl.endpoint.identification.algorithm", "str", "https", None, "l", "https: the broker's certificate must carry its host name; empty: any name will do."),
    *OAUTH_ROWS,
]

_PRODUCER: Final[list[Row]] = [
    ("acks", "str", "all", OneOf(("all", "-1", "0", "1")), "l", "How many replicas must have a batch before it is acknowledged: all in sync (all, -1), the leader (1), none (0)."),
    ("batch.size", "int", 16_384, _AT_LEAST_0, "m", "A batch for one partition is sent when it has this many bytes, if not sooner."),
    ("buffer.memory", "long", 33_554_432, _AT_LEAST_0, "h", "Bytes of unacknowledged records the producer may hold; send waits when they are used up."),
    ("compression.type", "str", "none", OneOf(PRODUCER_COMPRESSION_TYPES), "h", "How batches are compressed."),
    ("compression.gzip.level", "int", -1, RangeOrSpecial(-1, 1, 9), "m", "Level of gzip; -1 is its default."),
    ("compression.lz4.level", "int", 9, InRange(1, 17), "m", "Level of lz4."),
    ("compression.zstd.level", "int", 3, InRange(-131_072, 22), "m", "Level of zstd."),
    ("delivery.timeout.ms", "int", 120_000, _AT_LEAST_0, "m", "The time from send to a final answer, retries and waiting included; at least linger.ms + request.timeout.ms."),
    ("enable.idempotence", "bool", True, None, "l", "Sequence numbers let the broker drop duplicates and refuse gaps, so retries neither double nor reorder."),
    ("linger.ms", "long", 5, _AT_LEAST_0, "m", "How long a batch that is not full waits for more records."),
    ("max.block.ms", "long", 60_000, _AT_LEAST_0, "m", "How long send may wait for metadata and for buffer.memory."),
    ("max.in.flight.requests.per.connection", "int", 5, InRange(1), "l", "Unanswered produce requests per broker; at most 5 with idempotence."),
    ("max.request.size", "int", 1_048_576, _AT_LEAST_0, "m", "The largest record (uncompressed), and the largest produce request."),
    ("metadata.max.idle.ms", "long", 300_000, InRange(5_000), "l", "A topic not written to for this long is forgotten; the next send asks for it anew."),
    ("partitioner.adaptive.partitioning.enable", "bool", True, None, "l", "Send more keyless records to partitions whose brokers answer faster (KIP-794)."),
    ("partitioner.availability.timeout.ms", "long", 0, _AT_LEAST_0, "l", "A partition whose broker takes nothing for this long gets no keyless records; 0 turns this off."),
    ("partitioner.ignore.keys", "bool", False, None, "m", "Place records as if they had no key."),
    ("retries", "int", 2_147_483_647, _AT_LEAST_0, "h", "How often a batch may be sent again; delivery.timeout.ms is the better limit."),
    ("transaction.timeout.ms", "int", 60_000, None, "l", "The coordinator aborts a transaction that is open longer than this."),
    ("transaction.two.phase.commit.enable", "bool", False, None, "l", "Transactions take part in a two-phase commit and never time out (KIP-939)."),
    ("transactional.id", "str", None, None, "l", "The identity under which transactions survive a restart, and by which older instances are fenced."),
]

_CONSUMER: Final[list[Row]] = [
    ("allow.auto.create.topics", "bool", True, None, "m", "Let the broker create a topic that is subscribed to and does not exist."),
    ("auto.commit.interval.ms", "int", 5_000, _AT_LEAST_0, "l", "How often positions are committed when enable.auto.commit is on."),
    ("auto.offset.reset", "str", "latest", None, "m", "Where to start without a committed offset: earliest, latest, by_duration:PT1H, or none (an error)."),
    ("check.crcs", "bool", True, None, "l", "Check the CRC of every batch."),
    ("client.rack", "str", "", None, "l", "Where this client runs; a broker may then point to a replica nearby (KIP-392)."),
    ("default.api.timeout.ms", "int", 60_000, _AT_LEAST_0, "m", "How long calls without a time-out of their own may take."),
    ("enable.auto.commit", "bool", True, None, "m", "Commit positions in the background of poll."),
    ("exclude.internal.topics", "bool", True, None, "m", "Patterns do not match internal topics."),
    ("fetch.max.bytes", "int", 52_428_800, _AT_LEAST_0, "m", "Bytes of one fetch response, over all partitions; the first batch always fits."),
    ("fetch.max.wait.ms", "int", 500, _AT_LEAST_0, "l", "How long the broker may wait for fetch.min.bytes."),
    ("fetch.min.bytes", "int", 1, _AT_LEAST_0, "h", "The broker answers a fetch when this many bytes are there."),
    ("group.id", "str", None, None, "h", "The consumer group; needed to subscribe and to commit."),
    ("group.instance.id", "str", None, None, "m", "A lasting name for this member: restarts within session.timeout.ms cause no rebalance (KIP-345)."),
    ("group.protocol", "str", "classic", OneOf(("classic", "consumer"), ignore_case=True), "h", "classic, or consumer: the server-side protocol of KIP-848."),
    ("group.remote.assignor", "str", None, None, "m", "The broker's assignor to use with group.protocol=consumer."),
    ("heartbeat.interval.ms", "int", 3_000, None, "h", "The time between heartbeats of the classic protocol."),
    ("isolation.level", "str", "read_uncommitted", OneOf(("read_committed", "read_uncommitted")), "m", "read_committed hides records of open and aborted transactions."),
    ("max.partition.fetch.bytes", "int", 1_048_576, _AT_LEAST_0, "h", "Bytes per partition in one fetch response; the first batch always fits."),
    ("max.poll.interval.ms", "int", 300_000, InRange(1), "m", "A member that does not poll for this long leaves the group."),
    ("max.poll.records", "int", 500, InRange(1), "m", "The most records one poll returns; it does not change what is fetched."),
    ("partition.assignment.strategy", "list", ["range", "cooperative-sticky"], None, "m", "Assignors of the classic protocol in order of preference: range, roundrobin, sticky, cooperative-sticky."),
    ("session.timeout.ms", "int", 45_000, None, "h", "A member without a heartbeat for this long is taken out of the group."),
    ("share.acknowledgement.mode", "str", "implicit", OneOf(("implicit", "explicit")), "m", "Share groups: records are acknowledged by the next poll, or one by one."),
    ("share.acquire.mode", "str", "batch_optimized", OneOf(("batch_optimized", "record_limit"), ignore_case=True), "m", "Share groups: whole batches at a time, or at most max.poll.records."),
]

_ADMIN: Final[list[Row]] = [
    ("default.api.timeout.ms", "int", 60_000, _AT_LEAST_0, "m", "How long a call may take, retries included."),
    ("retries", "int", 2_147_483_647, _AT_LEAST_0, "l", "How often a call may be tried again within its time."),
    ("bootstrap.controllers", "list", "", None, "h", "Controllers to talk to instead of brokers (KIP-919); not supported yet."),
]
# fmt: on


def _table(rows: list[Row], **defaults: object) -> ConfigDef:
    changed = {name.replace("_", "."): value for name, value in defaults.items()}
    shared = [(n, t, changed.get(n, d), v, i, doc) for n, t, d, v, i, doc in _SHARED]
    return ConfigDef.of(_keys(shared), _keys(rows))


PRODUCER_CONFIGS: Final = _table(_PRODUCER)
CONSUMER_CONFIGS: Final = _table(_CONSUMER)
ADMIN_CONFIGS: Final = _table(_ADMIN, connections_max_idle_ms=300_000)
CLUSTER_CONFIGS: Final = _table([])
"""The configs that all clients share."""

_OURS: Final = frozenset([*PRODUCER_CONFIGS.keys, *CONSUMER_CONFIGS.keys, *ADMIN_CONFIGS.keys, *CLUSTER_CONFIGS.keys])
_FOREIGN: Final = frozenset([*JAVA, *LIBRDKAFKA])


def resolve_config(
    table: ConfigDef, config: Mapping[str, object] | None, keywords: Mapping[str, object]
) -> dict[str, ConfigValue]:
    """All configs of `table` with their types. Keywords have precedence over `config`, and both over defaults.

    Raises ConfigError for an invalid value, a missing required config, or an unknown name. In `config`, which several
    clients often share, the names of our other clients and those of other Kafka clients are accepted (`check_names`).
    """
    given: dict[str, object] = dict(config or {})
    check_names(given)
    for keyword, value in keywords.items():
        name = keyword if keyword in table else keyword.replace("_", ".")
        if name not in table:
            if name in INSTEAD:
                raise ConfigError(f"{keyword} is a config of another Kafka client. Here: {INSTEAD[name]}.")
            near = _nearest(name, table.keys).replace(".", "_")
            raise ConfigError(f"There is no config {keyword!r} for this client.{_hint(near)}")
        given[name] = value
    return table.parse_all(given)


def check_names(names: Iterable[str], *, prefix: str = "") -> None:
    """Raise ConfigError for a name that no Kafka client has, with the nearest name that exists, or for a name of
    another client that would be missed. Other names of other clients are logged, because they have no effect.

    `prefix` is put before the names in messages.
    """
    without_effect = []
    for name in names:
        if name in _OURS:
            continue
        if name in INSTEAD:
            raise ConfigError(f"{prefix}{name} is a config of another Kafka client. Here: {INSTEAD[name]}.")
        if not isinstance(name, str) or not (name in _FOREIGN or name.startswith(PREFIXES)):
            near = _nearest(str(name), _OURS)
            raise ConfigError(
                f"There is no config {f'{prefix}{name}'!r} for this client.{_hint(near and prefix + near)}"
            )
        without_effect.append(prefix + name)
    _log_once(tuple(sorted(without_effect)))


@functools.lru_cache(maxsize=256)
def _log_once(names: tuple[str, ...]) -> None:
    if names:
        log.warning("these configs of other Kafka clients have no effect here: %s", ", ".join(names))


def is_given(name: str, config: Mapping[str, object] | None, keywords: Mapping[str, object]) -> bool:
    """Whether the user has set the config, as a name or as a keyword."""
    return name in (config or {}) or name.replace(".", "_") in keywords


def _nearest(name: str, known: Iterable[str]) -> str:
    """The most similar known name; empty if none is similar."""
    return next(iter(difflib.get_close_matches(name.lower().replace("_", "."), sorted(known), n=1)), "")


def _hint(near: str) -> str:
    return f" Did you mean {near!r}?" if near else " docs/CLIENTS.md says where all configs are listed."
