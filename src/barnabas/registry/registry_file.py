"""Value: the content of a schema-registry.properties file, as Confluent's registry has it.

listeners=https://0.0.0.0:8081
kafkastore.bootstrap.servers=SASL_SSL://broker-1:9092         the Kafka client: kafkastore.sasl.mechanism, ...
kafkastore.topic=_schemas
leader.eligibility=false                                      the registry only reads
ssl.keystore.location=/etc/registry/server.p12                the HTTP server (security.py)
authentication.method=BASIC
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from barnabas.core.config import ConfigError
from barnabas.core.reprs import repr_without
from barnabas.registry.security import HOST_NAME

_KAFKA: Final = "kafkastore."
_OF_CLIENTS: Final = ("security.protocol", "sasl.", "ssl.", "client.id")
_OF_THE_SERVER: Final = ("ssl.", "authentication.")
_ELIGIBILITY: Final = ("leader.eligibility", "master.eligibility")
SETTINGS: Final[Mapping[str, str]] = {
    "listeners": "The one address of the registry's REST API: http://HOST:PORT or https://HOST:PORT.",
    "kafkastore.bootstrap.servers": "The brokers of the cluster that stores the schemas.",
    "kafkastore.topic": "The topic that stores the schemas.",
    "kafkastore.security.protocol": "As security.protocol of a client; so are kafkastore.sasl.*, kafkastore.ssl.* and"
    " kafkastore.client.id.",
    "leader.eligibility": "false: the registry only reads and never writes. Without it, true.",
    "master.eligibility": "The older name of leader.eligibility.",
}
"""The settings of the file that are not those of the HTTP server (`http_settings.SETTINGS`), each with its meaning."""


class RegistryFile(Struct, frozen=True):
    """The settings of one registry. None, or an empty mapping, stands for what the file does not contain."""

    listener: str | None
    topic: str | None
    client: Mapping[str, str]
    """The settings of the Kafka client."""
    configs: Mapping[str, str]
    """The settings of the HTTP server."""
    ignored: tuple[str, ...]
    read_only: bool = False
    """Whether the registry must never write (`leader.eligibility=false`)."""

    __repr__ = repr_without("client", "configs")


def read_registry_file(texts: Mapping[str, str]) -> RegistryFile:
    """Raises ConfigError if the file has several listeners, or if `leader.eligibility` is neither true nor false."""
    listener = topic = None
    read_only = False
    client: dict[str, str] = {}
    configs: dict[str, str] = {}
    ignored: list[str] = []
    for name, text in texts.items():
        of_kafka = name.removeprefix(_KAFKA)
        if name == "listeners":
            listener = text.strip()
        elif name == f"{_KAFKA}topic":
            topic = text.strip()
        elif name in _ELIGIBILITY:
            read_only = not _is_true(name, text)
        elif name == f"{_KAFKA}bootstrap.servers":
            client["bootstrap.servers"] = ",".join(part.rpartition("://")[2].strip() for part in text.split(","))
        elif name != of_kafka and of_kafka.startswith(_OF_CLIENTS):
            client[of_kafka] = text
        elif name.startswith(_OF_THE_SERVER) or name == HOST_NAME:
            configs[name] = text
        else:
            ignored.append(name)
    if listener and "," in listener:
        raise ConfigError(f"listeners={listener}: the registry has one listener. Run a second registry for another.")
    return RegistryFile(listener, topic, client, configs, tuple(sorted(ignored)), read_only)


def _is_true(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ConfigError(f"{name}={text}: the value is true or false.")
    return word == "true"
