"""Codec: the properties file of `barnabas connect serve` -> the settings of a worker.

The names and defaults are those of Kafka Connect's `DistributedConfig`. A worker needs one key more: `storage.location`
is a directory that all workers share, for the checkpoints of the connectors and the staged data of sources. Another key
of ours, `file.directories`, has the directories, separated by commas, in which connectors may use files.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, field

from barnabas.core.config import ConfigError
from barnabas.core.errors import BarnabasError
from barnabas.core.reprs import repr_without
from barnabas.protocol.transport.http.settings import HttpTlsConfig, read_tls
from barnabas.spark.connectors.connect.client_settings import parse_client_settings

WORKER_KEYS: Final[Mapping[str, str | None]] = {
    "bootstrap.servers": "localhost:9092",
    "group.id": None,
    "config.storage.topic": None,
    "config.storage.replication.factor": "3",
    "status.storage.topic": None,
    "status.storage.partitions": "5",
    "status.storage.replication.factor": "3",
    "storage.location": None,
    "listeners": "http://127.0.0.1:8083",
    "rest.advertised.host.name": "",
    "rest.advertised.port": "",
    "rest.extension.classes": "",
    "java.security.auth.login.config": "",
    "session.timeout.ms": "10000",
    "heartbeat.interval.ms": "3000",
    "rebalance.timeout.ms": "60000",
    "topic.tracking.enable": "true",
    "topic.tracking.allow.reset": "true",
    "key.converter": "",
    "value.converter": "",
    "header.converter": "",
    "config.providers": "",
    "file.directories": "",
}
"""The keys that a worker reads, with their defaults; None must be given."""
UNUSED_KEYS: Final[Mapping[str, str]] = {
    "offset.storage.topic": "offsets are in the checkpoints below storage.location",
    "offset.storage.partitions": "offsets are in the checkpoints below storage.location",
    "offset.storage.replication.factor": "offsets are in the checkpoints below storage.location",
    "offset.flush.interval.ms": "each micro-batch commits its offsets",
    "offset.flush.timeout.ms": "each micro-batch commits its offsets",
    "config.storage.partitions": "the topic has one partition",
    "plugin.path": "connectors are Python packages",
    "plugin.discovery": "connectors are Python packages",
    "scheduled.rebalance.max.delay.ms": "the connectors of a dead worker are moved after session.timeout.ms",
    "connect.protocol": "workers have a group protocol of their own",
    "exactly.once.source.support": "sources are always exactly once",
    "topic.creation.enable": "a source with topic.creation.* creates topics, others leave that to the brokers",
    "worker.sync.timeout.ms": "workers do not wait for one another",
    "worker.unsync.backoff.ms": "workers do not wait for one another",
    "task.shutdown.graceful.timeout.ms": "a query that is stopped ends its micro-batch or repeats it later",
    "rest.advertised.listener": "workers do not send requests to one another",
    "connector.client.config.override.policy": "the overrides of a connector are always allowed",
}
"""Keys of Connect that have no effect here, and why."""
PREFIXES: Final = (
    "key.converter.", "value.converter.", "header.converter.", "config.providers.", "producer.", "consumer.", "admin.",
    "spark.", "listeners.https.",
)  # fmt: skip
"""Keys that begin with one of these go to converters, config providers, clients and the Spark session."""
_CLIENT_PREFIXES: Final = (
    "security.", "ssl.", "sasl.", "client.", "request.timeout", "retry.backoff", "reconnect.", "socket.connection.",
)  # fmt: skip


BASIC_AUTH: Final = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
"""The one class that rest.extension.classes may name. Its users are those of a file of java.security.auth.login.config.
"""
_HTTPS: Final = "listeners.https."
_SSL_KEYS: Final = (
    "ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password", "ssl.keystore.key",
    "ssl.keystore.certificate.chain", "ssl.key.password", "ssl.truststore.location", "ssl.truststore.type",
    "ssl.truststore.password", "ssl.truststore.certificates", "ssl.client.auth", "ssl.enabled.protocols",
    "ssl.cipher.suites",
)  # fmt: skip
_SSL_UNUSED: Final = (
    "ssl.protocol", "ssl.provider", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation", "ssl.endpoint.identification.algorithm",
)  # fmt: skip
"""Settings of Java's TLS without effect here."""


class WorkerConfigError(BarnabasError, ValueError):
    """The properties of a worker have a wrong or a missing key."""


class ConnectWorkerConfig(Struct, frozen=True):
    """The settings of one worker. `client` has the settings of the worker's own Kafka clients, which its connectors'
    clients have, too. `client_overrides` are those of consumer.* and producer.* by the names that a connector would
    give them, such as consumer.override.isolation.level.
    """

    group_id: str
    config_storage_topic: str
    status_storage_topic: str
    storage_location: str
    client: Mapping[str, str]
    client_overrides: Mapping[str, str] = field(default_factory=dict)
    listener: str = "http://127.0.0.1:8083"
    advertised_host: str = ""
    advertised_port: int | None = None
    rest_tls: HttpTlsConfig | None = None
    """Given if the listener is https."""
    has_basic_auth: bool = False
    login_file: str = ""
    """The file of java.security.auth.login.config, for basic authentication."""
    config_storage_replication_factor: int = 3
    status_storage_partitions: int = 5
    status_storage_replication_factor: int = 3
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 60_000
    topic_tracking: bool = True
    topic_tracking_reset: bool = True
    file_directories: tuple[str, ...] = ()
    """The directories in which connectors may use files of the host (file.directories)."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """All keys of the file, for the runtime: converters, config providers, settings of Spark."""
    unused: tuple[tuple[str, str], ...] = ()
    """Keys of Connect in the file that have no effect here, and why."""

    __repr__ = repr_without("client", "client_overrides", "properties")

    @property
    def converters(self) -> dict[str, str]:
        """The worker's converters and their settings, for connectors that do not name converters of their own."""
        prefixes = ("key.converter", "value.converter", "header.converter")
        return {name: text for name, text in self.properties.items() if name.startswith(prefixes)}


def parse_worker_config(properties: Mapping[str, str]) -> ConnectWorkerConfig:
    """The settings in a properties file. Raises WorkerConfigError."""
    texts = {name: text.strip() for name, text in properties.items()}
    client = {name: text for name, text in texts.items() if name.startswith(_CLIENT_PREFIXES)}
    known = (*WORKER_KEYS, *UNUSED_KEYS)
    for name in texts:
        if name not in known and name not in client and not name.startswith(PREFIXES):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(sorted(WORKER_KEYS))}"
            raise WorkerConfigError(f"there is no worker setting {name}: {hint}")
    missing = [name for name, default in WORKER_KEYS.items() if default is None and not texts.get(name)]
    if missing:
        raise WorkerConfigError(
            f"the worker needs {', '.join(missing)}. All workers of a cluster have the same group.id and topics;"
            " storage.location is a directory that all of them can reach, for example file:///var/lib/connect."
        )
    values = {name: texts.get(name) or default for name, default in WORKER_KEYS.items()}
    listeners = [part.strip() for part in str(values["listeners"]).split(",") if part.strip()]
    if len(listeners) != 1:
        raise WorkerConfigError(f"listeners must be one address such as http://:8083, got {values['listeners']!r}")
    session_ms, heartbeat_ms = _number(values, "session.timeout.ms"), _number(values, "heartbeat.interval.ms")
    if heartbeat_ms >= session_ms:
        raise WorkerConfigError(
            f"heartbeat.interval.ms ({heartbeat_ms}) must be smaller than session.timeout.ms ({session_ms}); a third"
            " of it is usual"
        )
    try:
        of_connectors = parse_client_settings(texts)
    except ConfigError as error:
        raise WorkerConfigError(str(error)) from None
    return ConnectWorkerConfig(
        group_id=str(values["group.id"]),
        config_storage_topic=str(values["config.storage.topic"]),
        status_storage_topic=str(values["status.storage.topic"]),
        storage_location=str(values["storage.location"]).rstrip("/"),
        client={"bootstrap.servers": str(values["bootstrap.servers"]), **client},
        client_overrides=of_connectors.overrides,
        listener=listeners[0],
        rest_tls=_rest_tls(texts) if listeners[0].lower().startswith("https://") else None,
        has_basic_auth=_has_basic_auth(str(values["rest.extension.classes"])),
        login_file=str(values["java.security.auth.login.config"]),
        advertised_host=str(values["rest.advertised.host.name"]),
        advertised_port=_number(values, "rest.advertised.port") if values["rest.advertised.port"] else None,
        config_storage_replication_factor=_number(values, "config.storage.replication.factor"),
        status_storage_partitions=_number(values, "status.storage.partitions"),
        status_storage_replication_factor=_number(values, "status.storage.replication.factor"),
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        rebalance_timeout_ms=_number(values, "rebalance.timeout.ms"),
        topic_tracking=_flag(values, "topic.tracking.enable"),
        topic_tracking_reset=_flag(values, "topic.tracking.allow.reset"),
        file_directories=tuple(part.strip() for part in str(values["file.directories"]).split(",") if part.strip()),
        properties=texts,
        unused=(*((name, UNUSED_KEYS[name]) for name in texts if name in UNUSED_KEYS), *of_connectors.unused),
    )


def _rest_tls(texts: Mapping[str, str]) -> HttpTlsConfig:
    """The TLS settings of the REST API: those that begin with listeners.https., or, if there are none, the worker's own
    ones, which its Kafka clients have, too.
    """
    own = {name[len(_HTTPS) :]: text for name, text in texts.items() if name.startswith(_HTTPS)}
    given = own or {name: text for name, text in texts.items() if name.startswith("ssl.")}
    for name in own:
        if name not in (*_SSL_KEYS, *_SSL_UNUSED):
            near = difflib.get_close_matches(name, _SSL_KEYS, n=1)
            hint = f"did you mean {_HTTPS}{near[0]}?" if near else f"the settings are {', '.join(_SSL_KEYS)}"
            raise WorkerConfigError(f"there is no worker setting {_HTTPS}{name}: {hint}")
    if not given.get("ssl.keystore.location") and not given.get("ssl.keystore.certificate.chain"):
        raise WorkerConfigError(
            "an https listener needs a certificate: set listeners.https.ssl.keystore.location to a file with the"
            " certificates and the key, and listeners.https.ssl.keystore.type to PEM, PKCS12 or JKS"
        )
    try:
        return read_tls(given, _HTTPS)
    except ConfigError as error:
        raise WorkerConfigError(str(error)) from error


def _has_basic_auth(text: str) -> bool:
    classes = {part.strip() for part in text.split(",") if part.strip()}
    unknown = sorted(classes - {BASIC_AUTH, BASIC_AUTH.rpartition(".")[2]})
    if unknown:
        raise WorkerConfigError(f"rest.extension.classes names {unknown[0]}: the only extension is {BASIC_AUTH}")
    return bool(classes)


def _number(values: Mapping[str, Any], name: str) -> int:
    text = str(values[name])
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise WorkerConfigError(f"{name} must be a number from 1, got {text!r}")
    return int(text)


def _flag(values: Mapping[str, Any], name: str) -> bool:
    text = str(values[name]).lower()
    if text not in ("true", "false"):
        raise WorkerConfigError(f"{name} must be true or false, got {values[name]!r}")
    return text == "true"
