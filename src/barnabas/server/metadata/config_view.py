"""Machine: finds the value of a config in effect, and its source.

    topic    dynamic topic config            -> broker configs named in `ConfigKey.synonyms` -> default
    group    dynamic group config            -> broker configs named in `ConfigKey.synonyms` -> default
    broker   this broker's dynamic config    -> dynamic default of all brokers -> static (server.properties) -> default

A `ConfigView` is cheap; create one for each image. `describe_configs.py` builds the DescribeConfigs response.

Stored values are not refused, because another version or Apache Kafka may have accepted them. A number out of the range
counts as the nearest valid one (`ConfigKey.parse_stored`). A text without a valid value is passed over, as if it were
not set.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from barnabas.core.config import REQUIRED, ConfigDef, ConfigError, ConfigKey, ConfigValue, default_of
from barnabas.server.metadata.config_source import TO_TOPIC_UNIT, ConfigValueSource, broker_synonyms
from barnabas.server.metadata.configs.tables import BROKER_CONFIGS, CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from barnabas.server.metadata.image.small import ConfigResourceKey, ConfigsImage, ResourceType

_EMPTY: Final[Mapping[str, str]] = {}


class Effective(NamedTuple):
    """The typed value of a config in effect, and its source."""

    value: ConfigValue
    source: ConfigValueSource


class ConfigView:
    """The configs in effect on node `node_id`. `static` has the texts from server.properties and the command line."""

    def __init__(self, configs: ConfigsImage, *, node_id: int, static: Mapping[str, str] = _EMPTY) -> None:
        self._configs = configs
        self.node_id = node_id
        self.layers: tuple[tuple[ConfigValueSource, Mapping[str, str]], ...] = (
            (ConfigValueSource.DYNAMIC_BROKER_CONFIG, configs.broker(node_id)),
            (ConfigValueSource.DYNAMIC_DEFAULT_BROKER_CONFIG, configs.broker_defaults()),
            (ConfigValueSource.STATIC_BROKER_CONFIG, static),
        )

    def dynamic(self, resource: ConfigResourceKey) -> Mapping[str, str]:
        """The configs that are set on the resource itself."""
        return self._configs.of(resource)

    # -- topics and groups ---------------------------------------------------------------------------------------

    def topic(self, topic: str) -> dict[str, ConfigValue]:
        """Every topic config in effect for `topic`, typed."""
        return self._all(TOPIC_CONFIGS, self._configs.topic(topic), ConfigValueSource.DYNAMIC_TOPIC_CONFIG)

    def topic_value(self, topic: str, name: str) -> Effective:
        own = self._configs.topic(topic)
        return self.stored(TOPIC_CONFIGS[name], own, ConfigValueSource.DYNAMIC_TOPIC_CONFIG)

    def replaced_topic_values(self, topic: str) -> dict[str, tuple[str, ConfigValue]]:
        """The configs of `topic` whose stored texts are replaced: by name, the text and the value in effect."""
        return {
            name: (text, self.topic_value(topic, name).value)
            for name, text in self._configs.topic(topic).items()
            if name in TOPIC_CONFIGS and TOPIC_CONFIGS[name].replaces(text)
        }

    def new_topic(self, given: Mapping[str, str]) -> dict[str, Effective]:
        """Every topic config of a new topic with the configs `given` (for CreateTopics)."""
        return {key.name: self.one(key, given, ConfigValueSource.DYNAMIC_TOPIC_CONFIG) for key in TOPIC_CONFIGS}

    def group(self, group_id: str) -> dict[str, ConfigValue]:
        """Every group config in effect for `group_id`, typed, limited to the bounds in the broker configs."""
        own = self._configs.group(group_id)
        values = self._all(GROUP_CONFIGS, own, ConfigValueSource.GROUP_CONFIG)
        return values | {name: self.limited_to_bounds(name, values[name]) for name in own if name in values}

    def group_bounds(self, name: str) -> tuple[tuple[str, int | None], tuple[str, int | None]]:
        """The (name, value) of the broker config that is the lower bound of the group config `name`, and of the one
        that is the upper bound. The value is None if Kafka has no such broker config."""
        kind, _, rest = name.partition(".")
        smallest, largest = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest.removeprefix('num.')}"
        return (
            (smallest, self.broker_int(smallest) if smallest in BROKER_CONFIGS else None),
            (largest, self.broker_int(largest) if largest in BROKER_CONFIGS else None),
        )

    def limited_to_bounds(self, name: str, value: ConfigValue) -> ConfigValue:
        """The value of the group config `name`, limited to the broker configs that are its bounds. The bounds may
        have been changed after the group config was set (GroupConfig.evaluate)."""
        if not isinstance(value, int) or isinstance(value, bool):
            return value
        (_, low), (_, high) = self.group_bounds(name)
        if low is not None and value < low:
            return low
        return high if high is not None and value > high else value

    def client_metrics(self, subscription: str) -> dict[str, ConfigValue]:
        own = self._configs.of(ConfigResourceKey(ResourceType.CLIENT_METRICS, subscription))
        return self._all(CLIENT_METRICS_CONFIGS, own, ConfigValueSource.CLIENT_METRICS_CONFIG)

    # -- brokers -------------------------------------------------------------------------------------------------

    def broker(self) -> dict[str, ConfigValue]:
        """Every broker config in effect on this node, typed. A required config that is not set is None."""
        return {key.name: self.broker_value(key.name).value for key in BROKER_CONFIGS}

    def broker_value(self, name: str) -> Effective:
        """One broker config in effect on this node. Raises KeyError for an unknown name."""
        key = BROKER_CONFIGS[name]
        for source, layer in self.layers:
            text = layer.get(name)
            if text is not None:
                with contextlib.suppress(ConfigError):
                    return Effective(key.parse_stored(text), source)
        return Effective(default_of(key), ConfigValueSource.DEFAULT_CONFIG)

    def listener_value(self, listener: str, name: str) -> ConfigValue:
        """One broker config in effect for a listener of this node: `listener.name.<listener>.<name>`, or `<name>`."""
        prefixed = f"listener.name.{listener.lower()}.{name}"
        text = next((layer[prefixed] for _, layer in self.layers if prefixed in layer), None)
        return self.broker_value(name).value if text is None else BROKER_CONFIGS[name].parse(text)

    def broker_int(self, name: str) -> int:
        value = self.broker_value(name).value
        assert isinstance(value, int), f"broker config {name} is not a number"
        return value

    # ------------------------------------------------------------------------------------------------------------

    def _all(self, table: ConfigDef, own: Mapping[str, str], source: ConfigValueSource) -> dict[str, ConfigValue]:
        return {key.name: self.stored(key, own, source).value for key in table}

    def one(self, key: ConfigKey, own: Mapping[str, str], source: ConfigValueSource) -> Effective:
        """The value of `key` in effect for a resource that is given the dynamic configs `own`. `source` is the source
        of a value that is taken from `own`. Raises ConfigError if that value is not valid."""
        text = own.get(key.name)
        return self._inherited(key) if text is None else Effective(key.parse(text), source)

    def stored(self, key: ConfigKey, own: Mapping[str, str], source: ConfigValueSource) -> Effective:
        """As `one`, for a resource that has the dynamic configs `own`."""
        text = own.get(key.name)
        if text is not None:
            with contextlib.suppress(ConfigError):
                return Effective(key.parse_stored(text), source)
        return self._inherited(key)

    def _inherited(self, key: ConfigKey) -> Effective:
        """The value that a resource has from the broker configs, or the default."""
        for source, layer in self.layers:
            for synonym in key.synonyms:
                text = layer.get(synonym)
                if text is not None:
                    convert = TO_TOPIC_UNIT.get(synonym)
                    with contextlib.suppress(ConfigError):
                        return Effective(key.parse_stored(convert(text) if convert else text), source)
        return Effective(default_of(key), ConfigValueSource.DEFAULT_CONFIG)


class Synonym(Struct, frozen=True):
    """One source of a value, as listed by DescribeConfigs."""

    name: str
    value: str | None
    source: ConfigValueSource


def broker_synonym_values(view: ConfigView, name: str) -> list[Synonym]:
    """The values of the broker config `name` and of its synonyms, by precedence (`ConfigHelper.configSynonyms`).

    As in Kafka, the list starts with the first value of `name` itself, set or default; values before that are left out.
    If only `log.retention.hours` is set, the list for `log.retention.ms` is empty.
    """
    names = broker_synonyms(name)
    found = [
        Synonym(synonym, layer[synonym], source)
        for source, layer in view.layers
        for synonym in names
        if synonym in layer
    ]
    for synonym in names:
        key = BROKER_CONFIGS.get(synonym)
        if key is not None and key.default is not REQUIRED and key.default is not None:
            found.append(Synonym(synonym, key.to_text(key.default), ConfigValueSource.DEFAULT_CONFIG))
    while found and found[0].name != name:
        found.pop(0)
    return found


def development_defaults(static: Mapping[str, str], brokers: int) -> dict[str, str]:
    """Return `static` with defaults for a cluster of `brokers` nodes added.

    Kafka's defaults for its internal topics are three replicas, two of them in sync, so on a smaller cluster the first
    consumer group or transaction fails. `barnabas serve` uses lower defaults for a smaller cluster. Values in `static`
    are never replaced.
    """
    replicas, in_sync = str(min(3, max(1, brokers))), str(min(2, max(1, brokers)))
    wanted = {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "mirror.state.topic.replication.factor": replicas,
        "mirror.state.topic.min.isr": in_sync,
    }
    return {**wanted, **static}
