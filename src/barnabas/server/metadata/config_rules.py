"""Machine: validates the dynamic configs of a resource. Raises ConfigError, or KafkaError with Kafka's error code.

The rules are those of Kafka's `LogConfig.validate`, `DynamicBrokerConfig.validate`, `GroupConfig.validate` and
`ControllerConfigurationValidator`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from barnabas.core.config import ConfigDef, ConfigError, ConfigValue, UpdateMode
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.regex import Re2Pattern
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.configs.not_applied import NOT_APPLIED, OF_OPEN_LISTENERS
from barnabas.server.metadata.configs.tables import BROKER_CONFIGS, CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS

_LISTENER_PREFIX: Final = re.compile(r"listener\.name\.(?P<listener>[^.]+)\.(?P<config>.+)")
_SECURITY: Final = re.compile(r"ssl\.(key|keystore|truststore)\..*")
_OVERRIDES: Final = "max.connections.per.ip.overrides"
_LISTENER_LIMITS: Final = ("max.connections", "max.connection.creation.rate")
_OF_LISTENERS: Final = ("listeners", "listener.security.protocol.map")
_OF_NEW_LISTENERS: Final = ("ssl.", "sasl.", "connections.max.reauth.ms")
"""The beginnings of the configs that a new listener reads."""
_MATCH_SELECTORS: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
"""The keys of `match` in a client-metrics subscription (`ClientMetricsConfigs.ClientMatchingParams`)."""
CLIENT_MATCH_PROGRAM_MAX: Final = 500
"""The longest program of an expression in `match`, in instructions. Brokers match it against client ids, which may have
32 KB, on the event loop."""
_MECHANISM_CONFIGS: Final = frozenset(
    {
        "sasl.login.class",
        "sasl.server.callback.handler.class",
        "connections.max.reauth.ms",
        "sasl.login.callback.handler.class",
        "sasl.jaas.config",
    }
)


def parse_connection_overrides(text: str) -> dict[str, int]:
    """Parse `host:count,host:count`, the value of max.connections.per.ip.overrides. Raises ConfigError."""
    overrides: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = part.rpartition(":")
        if not colon or not count.isdigit():
            raise ConfigError(f"{_OVERRIDES}: {part!r} does not have the form host:count.")
        overrides[host] = int(count)
    return overrides


LINK_CONFIGS: Final = frozenset({"mirror.name", "mirror.state"})
"""The topic configs that only the coordinator of a cluster link sets."""


def is_mirror_topic(configs: Mapping[str, str]) -> bool:
    """Whether the dynamic configs of a topic make it a mirror of a cluster link, which refuses writes."""
    return bool(configs.get("mirror.name")) and configs.get("mirror.state") != "stopped"


def check_no_link_configs(names: Iterable[str]) -> None:
    """Raises ConfigError if a client sets or deletes a config that belongs to cluster links."""
    found = sorted(LINK_CONFIGS.intersection(names))
    if found:
        raise ConfigError(f"{', '.join(found)} is set by cluster links only. Use barnabas links.")


def check_topic_configs(configs: Mapping[str, str], view: ConfigView, before: Mapping[str, str] | None = None) -> None:
    """Validate `configs`, all dynamic configs of a topic. `view` supplies the inherited values, `before` has the
    configs that the topic has now."""
    _check_names(configs, TOPIC_CONFIGS, "topic config name")
    effective = {name: value.value for name, value in view.new_topic(configs).items()}
    low, high = _number(effective, "min.compaction.lag.ms"), _number(effective, "max.compaction.lag.ms")
    if low > high:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        )
    if effective["remote.storage.enable"]:
        _check_tiered(effective, view)
    elif before and not effective["remote.log.delete.on.disable"]:
        _check_not_disabled(before, view)


def _check_not_disabled(before: Mapping[str, str], view: ConfigView) -> None:
    """Raises ConfigError if the topic has tiered storage now: without it, its copies would be neither read nor
    deleted."""
    if view.new_topic(before)["remote.storage.enable"].value:
        raise ConfigError(
            "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data "
            "and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want "
            "to disable remote storage and delete all remote data, please set "
            "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
        )


def check_broker_configs(configs: Mapping[str, str], *, per_broker: bool) -> None:
    """Validate `configs`: with `per_broker` all dynamic configs of one broker, otherwise the dynamic defaults of all
    brokers.

    Raises KafkaError INVALID_REQUEST, as Kafka does (KAFKA-13609), for an invalid value, for a config that cannot be
    changed dynamically, and for a config that can be set only for one broker or only for one listener.
    """
    fixed = sorted(name for name in configs if _is_fixed(name))
    if fixed:
        raise _invalid_request(f"Cannot update these configs dynamically: {_set(fixed)}")
    if per_broker:
        bare = sorted(name for name in configs if _SECURITY.fullmatch(name))
        if bare:
            raise _invalid_request(
                "These security configs can be dynamically updated only per-listener using the listener prefix: "
                f"{_set(bare)}"
            )
    else:
        narrow = sorted(name for name in configs if _mode(name) is UpdateMode.PER_BROKER)
        if narrow:
            raise _invalid_request(f"Cannot update these configs at default cluster level: {_set(narrow)}")
    for name, text in configs.items():
        key = BROKER_CONFIGS.get(_plain(name))
        if key is not None:
            try:
                value = key.parse(text)
                if key.name == _OVERRIDES:
                    parse_connection_overrides(text)
                if key.name in _LISTENER_LIMITS and key.name != name and value == 0:
                    raise ConfigError(f"{name}={text}: the limit of a listener must be greater than 0.")
            except ConfigError as error:
                raise _invalid_request(str(error)) from error


def check_applied(
    changes: Mapping[str, str | None], present: Mapping[str, str], open_listeners: Collection[str] = ()
) -> None:
    """Raises KafkaError INVALID_REQUEST for a new value of a broker config that brokers of Barnabas do not apply while
    they run, also for one listener (`listener.name.<listener>.<config>`). A removal is always possible.

    `open_listeners` are the names of those listeners whose settings cannot be changed any more, but for their stores
    and limits. The broker itself knows all its listeners, and checks the change, too (`server/node/listening`).
    """
    fixed = sorted(
        name
        for name, value in changes.items()
        if value is not None and value != present.get(name) and _is_of_open_listener(name, open_listeners)
    )
    if fixed:
        raise _invalid_request(
            f"Configs cannot be updated dynamically for an existing listener: {_set(fixed)}. Restart the broker with "
            "the new values in its configuration file, or create a new listener."
        )
    names = sorted(
        name
        for name, value in changes.items()
        if value is not None and value != present.get(name) and _is_not_applied(name)
    )
    if names:
        raise _invalid_request(
            f"Cannot update these configs dynamically: {_set(names)}. A broker reads them at its start, or not at all: "
            "set them in the broker's configuration file, and restart it."
        )


def is_about_listeners(name: str) -> bool:
    """Whether a dynamic config of a broker is about its listeners."""
    return name in _OF_LISTENERS or name.startswith("listener.name.")


def check_group_configs(configs: Mapping[str, str], view: ConfigView) -> None:
    """Validate `configs`, all dynamic configs of a group. Values must lie within the bounds in the broker configs."""
    _check_names(configs, GROUP_CONFIGS, "group config name")
    values = {name: GROUP_CONFIGS.parse(name, text) for name, text in configs.items()}
    for name, value in values.items():
        if isinstance(value, int) and not isinstance(value, bool):
            _check_group_bounds(name, value, view)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if session in values or heartbeat in values:
            own = view.one(GROUP_CONFIGS[session], configs, view.layers[0][0]).value
            beat = view.one(GROUP_CONFIGS[heartbeat], configs, view.layers[0][0]).value
            assert isinstance(own, int), "a session timeout is a number"
            assert isinstance(beat, int), "a heartbeat interval is a number"
            if own <= beat:
                raise ConfigError(f"{session} must be greater than {heartbeat}")


def check_client_metrics_configs(configs: Mapping[str, str]) -> None:
    """Validate a client-metrics subscription. Intervals are from 100 ms to one hour (`ClientMetricsConfigs`)."""
    for name in configs:
        if name not in CLIENT_METRICS_CONFIGS:
            raise _invalid_request(f"Unknown client metrics configuration: {name}")
    for pattern in configs.get("match", "").split(","):
        _check_match(pattern)
    if "interval.ms" in configs:
        value = CLIENT_METRICS_CONFIGS.parse("interval.ms", configs["interval.ms"])
        assert isinstance(value, int), "an interval is a number"
        if not 100 <= value <= 3_600_000:
            raise _invalid_request(
                f"Invalid value {value} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
            )


def _check_match(pattern: str) -> None:
    """Validate one pattern of the form `key=regular expression` (KIP-714)."""
    if not pattern.strip():
        return
    selector, equals, expression = (part.strip() for part in pattern.partition("="))
    if not equals or selector not in _MATCH_SELECTORS:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
    try:
        size = Re2Pattern(expression).program_size
    except KafkaError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}") from error
    if size > CLIENT_MATCH_PROGRAM_MAX:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Illegal client matching pattern: {pattern}: its program has {size} instructions, at most"
            f" {CLIENT_MATCH_PROGRAM_MAX} are accepted. Use smaller repetition counts.",
        )


def _check_names(configs: Mapping[str, str], table: ConfigDef, what: str) -> None:
    for name in sorted(configs):
        if name not in table:
            raise ConfigError(f"Unknown {what}: {name}")


def _check_tiered(effective: Mapping[str, ConfigValue], view: ConfigView) -> None:
    if not view.broker_value("remote.log.storage.system.enable").value:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    if "compact" in (effective["cleanup.policy"] or ()):  # type: ignore[operator]  # a list config is a tuple
        raise ConfigError(
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."
        )
    for local, total, unlimited in (
        ("local.retention.ms", "retention.ms", -1),
        ("local.retention.bytes", "retention.bytes", -1),
    ):
        kept, limit = _number(effective, local), _number(effective, total)
        if effective["remote.log.copy.disable"] and kept not in (-2, limit):
            raise ConfigError(
                f"When `remote.log.copy.disable` is set to true, the `{local}` and `{total}` must be set to the "
                "identical value because there will be no more logs copied to the remote storage."
            )
        if kept == -2 or limit == unlimited:
            continue
        if kept == -1:
            raise ConfigError(
                f"Invalid value {kept} for configuration {local}: "
                f"Value must not be -1 as {total} value is set as {limit}."
            )
        if kept > limit:
            raise ConfigError(
                f"Invalid value {kept} for configuration {local}: Value must not be more than property: {total} value."
            )


def _check_group_bounds(name: str, value: int, view: ConfigView) -> None:
    (smallest, low), (largest, high) = view.group_bounds(name)
    if low is not None and value < low:
        raise ConfigError(f"{name} must be greater than or equal to {smallest}")
    if high is not None and value > high:
        raise ConfigError(f"{name} must be less than or equal to {largest}")


def _number(values: Mapping[str, ConfigValue], name: str) -> int:
    value = values[name]
    assert isinstance(value, int), f"config {name} is not a number"
    return value


def _plain(name: str) -> str:
    """The name `<config>` of `listener.name.<listener>.[<mechanism>.]<config>`; any other name is returned as it is."""
    match = _LISTENER_PREFIX.fullmatch(name)
    if match is None:
        return name
    config = match["config"]
    return config if config in BROKER_CONFIGS else config.partition(".")[2] or config


def _is_fixed(name: str) -> bool:
    plain = _plain(name)
    key = BROKER_CONFIGS.get(plain)
    if plain != name and plain in _MECHANISM_CONFIGS:
        return False
    return key is not None and not key.is_dynamic


def _is_of_open_listener(name: str, open_listeners: Collection[str]) -> bool:
    match = _LISTENER_PREFIX.fullmatch(name)
    return match is not None and match["listener"].upper() in open_listeners and _plain(name) not in OF_OPEN_LISTENERS


def _is_not_applied(name: str) -> bool:
    plain = _plain(name)
    if plain != name and plain.startswith(_OF_NEW_LISTENERS):
        return False
    own_limit = plain != name and plain.startswith("max.connections.per.ip")  # these limits count all listeners
    return plain in NOT_APPLIED or own_limit


def _mode(name: str) -> UpdateMode | None:
    if _LISTENER_PREFIX.fullmatch(name):
        return UpdateMode.PER_BROKER
    key = BROKER_CONFIGS.get(name)
    return None if key is None else key.update_mode


def _invalid_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _set(names: list[str]) -> str:
    return "[" + ", ".join(names) + "]"
