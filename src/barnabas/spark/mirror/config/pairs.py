"""Codec: the keys of one pair of clusters -> `PairConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.spark.mirror.config.keys import DEFAULT_POLICY, IDENTITY_POLICY, PAIR_KEYS, WORKER_KEYS
from barnabas.spark.mirror.config.values import Clients, Job, PairConfig, Replication, Selects
from barnabas.spark.mirror.errors import MirrorConfigError
from barnabas.spark.mirror.naming.filters import NameFilter
from barnabas.spark.mirror.naming.policies import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    ReplicationPolicy,
)

_INT_MAX: Final = 2**31 - 1


class PairValues:
    """The values of the keys of one pair: of the pair itself, or of all pairs, or the default."""

    def __init__(self, texts: Mapping[str, str], source: str, target: str) -> None:
        self._texts = texts
        self.source = source
        self.target = target

    def text(self, name: str) -> str:
        """Raises MirrorConfigError if the value is not one of the key's few values."""
        key = PAIR_KEYS[name]
        found = self._texts.get(self._given_as(name), key.default)
        if key.choices and found not in key.choices:
            raise self._invalid(name, f"one of {', '.join(key.choices)}")
        return found

    def flag(self, name: str) -> bool:
        text = self.text(name).lower()
        if text not in ("true", "false"):
            raise self._invalid(name, "true or false")
        return text == "true"

    def number(self, name: str, least: int = 1) -> int:
        text = self.text(name)
        if not text.isascii() or not text.isdecimal() or not least <= int(text) <= _INT_MAX:
            raise self._invalid(name, f"a number from {least}")
        return int(text)

    def names(self, name: str) -> list[str]:
        return [part.strip() for part in self.text(name).split(",") if part.strip()]

    def filter(self, include: str, exclude: str) -> NameFilter:
        try:
            return NameFilter(self.names(include), self.names(exclude))
        except ValueError as error:
            raise MirrorConfigError(f"{self._given_as(include)} or {self._given_as(exclude)}: {error}") from None

    def job(self, name: str) -> Job:
        """The keys `<name>.enabled` and `<name>.interval.seconds`."""
        return Job(self.flag(f"{name}.enabled"), float(self.number(f"{name}.interval.seconds")))

    def worker(self, name: str) -> str:
        """A key of the worker that would write into the target cluster."""
        for given in (f"{self.target}.{name}", f"{self.source}->{self.target}.{name}", name):
            if self._texts.get(given):
                return self._texts[given]
        return WORKER_KEYS[name]

    def only(self, name: str, *classes: str) -> str:
        """One of the classes of Kafka, by its short name. Raises MirrorConfigError for any other class."""
        found = self.text(name).rpartition(".")[2]
        if found not in classes:
            raise self._invalid(name, f"{' or '.join(classes)}; other classes are not supported")
        return found

    def _given_as(self, name: str) -> str:
        own = f"{self.source}->{self.target}.{name}"
        return own if own in self._texts else name

    def _invalid(self, name: str, expected: str) -> MirrorConfigError:
        given = self._given_as(name)
        return MirrorConfigError(f"{given} must be {expected}, got {self._texts.get(given)!r}")


def build_pair(values: PairValues, source_clients: Clients, target_clients: Clients) -> PairConfig:
    """Raises MirrorConfigError."""
    values.only("topic.filter.class", "DefaultTopicFilter")
    values.only("group.filter.class", "DefaultGroupFilter")
    values.only("config.property.filter.class", "DefaultConfigPropertyFilter")
    values.only("forwarding.admin.class", "ForwardingAdmin")
    transactional = _transactional(values)
    heartbeats = values.job("emit.heartbeats")
    checkpoints, groups = values.job("emit.checkpoints"), values.job("sync.group.offsets")
    return PairConfig(
        source=values.source,
        target=values.target,
        enabled=values.flag("enabled"),
        source_clients=_with_isolation(source_clients, values, transactional=transactional),
        target_clients=target_clients,
        policy=_policy(values),
        topics=values.filter("topics", "topics.exclude").selects,
        groups=values.filter("groups", "groups.exclude").selects,
        configs=_excluding(values),
        use_source_defaults=values.text("use.defaults.from") == "source",
        replication=_replication(values),
        offset_syncs_in_source=values.text("offset-syncs.topic.location") == "source",
        refresh_topics=values.job("refresh.topics"),
        refresh_groups=values.job("refresh.groups"),
        sync_configs=values.job("sync.topic.configs"),
        sync_acls=values.job("sync.topic.acls"),
        sync_groups=groups,
        checkpoints=checkpoints,
        heartbeats=heartbeats,
        mirror_heartbeats=values.flag("heartbeats.replication.enabled"),
        offset_syncs_enabled=values.flag("emit.offset-syncs.enabled"),
        reverse_checkpoints=values.flag("reverse.checkpoints.enabled"),
        admin_timeout_ms=values.number("admin.timeout.ms"),
        offsets_topic=values.worker("offset.storage.topic") or f"mm2-offsets.{values.source}.internal",
        offsets_partitions=_worker_number(values, "offset.storage.partitions"),
        transactional=transactional,
        fail_on_data_loss=values.text("on.data.loss") == "fail",
        provenance_header=values.text("provenance.header") or None,
        copy_options=_copy_options(values),
    )


def _policy(values: PairValues) -> ReplicationPolicy:
    names = [name.rpartition(".")[2] for name in (DEFAULT_POLICY, IDENTITY_POLICY)]
    chosen = values.only("replication.policy.class", *names)
    separator = values.text("replication.policy.separator")
    if not separator:
        raise MirrorConfigError("replication.policy.separator must not be empty, for example a dot or a hyphen")
    internal = values.flag("replication.policy.internal.topic.separator.enabled")
    if chosen == names[1]:
        return IdentityReplicationPolicy(values.source, separator, internal)
    return DefaultReplicationPolicy(separator, internal)


def _excluding(values: PairValues) -> Selects:
    try:
        return NameFilter([".*"], values.names("config.properties.exclude")).selects
    except ValueError as error:
        raise MirrorConfigError(f"config.properties.exclude: {error}") from None


def _replication(values: PairValues) -> Replication:
    return Replication(
        topics=values.number("replication.factor"),
        heartbeats=values.number("heartbeats.topic.replication.factor"),
        checkpoints=values.number("checkpoints.topic.replication.factor"),
        offset_syncs=values.number("offset-syncs.topic.replication.factor"),
        offsets=_worker_number(values, "offset.storage.replication.factor"),
    )


def _worker_number(values: PairValues, name: str) -> int:
    text = values.worker(name)
    if text == "-1":
        return -1
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= _INT_MAX:
        raise MirrorConfigError(f"{name} must be a number from 1, or -1 for the broker's default, got {text!r}")
    return int(text)


def _transactional(values: PairValues) -> bool:
    text = values.worker("exactly.once.source.support").lower()
    if text not in ("disabled", "preparing", "enabled"):
        raise MirrorConfigError(
            f"{values.target}.exactly.once.source.support must be enabled, preparing or disabled, got {text!r}"
        )
    return text != "disabled"


def _with_isolation(clients: Clients, values: PairValues, *, transactional: bool) -> Clients:
    """The clients, with a consumer that reads committed records from the earliest on, unless the file says otherwise.
    Exactly once needs read_committed."""
    consumer = {"auto.offset.reset": "earliest", "isolation.level": "read_committed", **clients.consumer}
    if transactional and consumer["isolation.level"].lower() != "read_committed":
        raise MirrorConfigError(
            f"{values.source}.consumer.isolation.level={consumer['isolation.level']} would copy the records of aborted"
            f" transactions. Set read_committed, or {values.target}.exactly.once.source.support=disabled"
        )
    return Clients(clients.admin, consumer, clients.producer)


def _copy_options(values: PairValues) -> dict[str, str]:
    """The options of the copier that are given. 0 stands for the copier's default."""
    names = ("tasks.max", "trigger.interval.ms", "max.bytes.per.trigger")
    return {name: str(number) for name in names if (number := values.number(name, least=0))}
