"""Machine: the value a config has in effect, and where it comes from.

    topic    dynamic topic config            -> broker configs named in `ConfigKey.synonyms` -> default
    group    dynamic group config            -> broker configs named in `ConfigKey.synonyms` -> default
    broker   this broker's dynamic config    -> dynamic default of all brokers -> static (server.properties) -> default

`ConfigView` is cheap to make; make a new one for each image. What DescribeConfigs shows is in `describe_configs.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from barnabas.core.config import REQUIRED, ConfigDef, ConfigKey, ConfigValue, default_of
from barnabas.server.metadata.config_source import TO_TOPIC_UNIT, ConfigSource, broker_synonyms
from barnabas.server.metadata.configs.tables import BROKER_CONFIGS, CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from barnabas.server.metadata.image.small import ConfigResourceKey, ConfigsImage, ResourceType

_NOTHING: Final[Mapping[str, str]] = {}


class Effective(NamedTuple):
    """A config's value in effect, typed, and where it comes from."""

    value: ConfigValue
    source: ConfigSource


class ConfigView:
    """Reads configs as node `node_id` sees them; `static` is what its user set, as text."""

    def __init__(self, configs: ConfigsImage, *, node_id: int, static: Mapping[str, str] = _NOTHING) -> None:
        self._configs = configs
        self.node_id = node_id
        self.layers: tuple[tuple[ConfigSource, Mapping[str, str]], ...] = (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, configs.broker(node_id)),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, configs.broker_defaults()),
            (ConfigSource.STATIC_BROKER_CONFIG, static),
        )

    def dynamic(self, resource: ConfigResourceKey) -> Mapping[str, str]:
        """What was set on the resource itself."""
        return self._configs.of(resource)

    # -- topics and groups ---------------------------------------------------------------------------------------

    def topic(self, topic: str) -> dict[str, ConfigValue]:
        """Every topic config in effect for `topic`, typed: what a log is configured with."""
        return self._all(TOPIC_CONFIGS, self._configs.topic(topic), ConfigSource.DYNAMIC_TOPIC_CONFIG)

    def topic_value(self, topic: str, name: str) -> Effective:
        own = self._configs.topic(topic)
        return self.one(TOPIC_CONFIGS[name], own, ConfigSource.DYNAMIC_TOPIC_CONFIG)

    def new_topic(self, given: Mapping[str, str]) -> dict[str, Effective]:
        """What every topic config would be for a topic made with the configs `given` (for CreateTopics)."""
        return {key.name: self.one(key, given, ConfigSource.DYNAMIC_TOPIC_CONFIG) for key in TOPIC_CONFIGS}

    def group(self, group_id: str) -> dict[str, ConfigValue]:
        """Every group config in effect for `group_id`, typed, within the bounds of the brokers."""
        own = self._configs.group(group_id)
        values = self._all(GROUP_CONFIGS, own, ConfigSource.GROUP_CONFIG)
        return values | {name: self.held_in_bounds(name, values[name]) for name in own if name in values}

    def group_bounds(self, name: str) -> tuple[tuple[str, int | None], tuple[str, int | None]]:
        """The broker configs between which a group config must lie, and their values; None: not bounded."""
        kind, _, rest = name.partition(".")
        smallest, largest = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest.removeprefix('num.')}"
        return (
            (smallest, self.broker_int(smallest) if smallest in BROKER_CONFIGS else None),
            (largest, self.broker_int(largest) if largest in BROKER_CONFIGS else None),
        )

    def held_in_bounds(self, name: str, value: ConfigValue) -> ConfigValue:
        """What a group config counts for: bounds may have been narrowed since it was set (GroupConfig.evaluate)."""
        if not isinstance(value, int) or isinstance(value, bool):
            return value
        (_, low), (_, high) = self.group_bounds(name)
        if low is not None and value < low:
            return low
        return high if high is not None and value > high else value

    def client_metrics(self, subscription: str) -> dict[str, ConfigValue]:
        own = self._configs.of(ConfigResourceKey(ResourceType.CLIENT_METRICS, subscription))
        return self._all(CLIENT_METRICS_CONFIGS, own, ConfigSource.CLIENT_METRICS_CONFIG)

    # -- brokers -------------------------------------------------------------------------------------------------

    def broker(self) -> dict[str, ConfigValue]:
        """Every broker config in effect on this node, typed. A required config that is not set is None."""
        return {key.name: self.broker_value(key.name).value for key in BROKER_CONFIGS}

    def broker_value(self, name: str) -> Effective:
        """One broker config in effect on this node. Raises KeyError for a name that is no broker config."""
        key = BROKER_CONFIGS[name]
        for source, layer in self.layers:
            text = layer.get(name)
            if text is not None:
                return Effective(key.parse(text), source)
        return Effective(default_of(key), ConfigSource.DEFAULT_CONFIG)

    def broker_int(self, name: str) -> int:
        value = self.broker_value(name).value
        assert isinstance(value, int), f"broker config {name} is not a number"
        return value

    # ------------------------------------------------------------------------------------------------------------

    def _all(self, table: ConfigDef, own: Mapping[str, str], source: ConfigSource) -> dict[str, ConfigValue]:
        return {key.name: self.one(key, own, source).value for key in table}

    def one(self, key: ConfigKey, own: Mapping[str, str], source: ConfigSource) -> Effective:
        """The value of `key` for a resource that has set `own` (whose source is `source`)."""
        text = own.get(key.name)
        if text is not None:
            return Effective(key.parse(text), source)
        for layer_source, layer in self.layers:
            for synonym in key.synonyms:
                text = layer.get(synonym)
                if text is not None:
                    convert = TO_TOPIC_UNIT.get(synonym)
                    return Effective(key.parse(convert(text) if convert else text), layer_source)
        return Effective(default_of(key), ConfigSource.DEFAULT_CONFIG)


class Synonym(Struct, frozen=True):
    """One place a value may come from, as DescribeConfigs lists them."""

    name: str
    value: str | None
    source: ConfigSource


def broker_synonym_values(view: ConfigView, name: str) -> list[Synonym]:
    """Everywhere broker config `name` has a value, the one in effect first (`ConfigHelper.configSynonyms`).

    As in Kafka the list begins with an entry of that very name: what lies before it does not apply to it, and a value
    that only `log.retention.hours` gives is not shown for `log.retention.ms`.
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
            found.append(Synonym(synonym, key.to_text(key.default), ConfigSource.DEFAULT_CONFIG))
    while found and found[0].name != name:
        found.pop(0)
    return found


def development_defaults(static: Mapping[str, str], brokers: int) -> dict[str, str]:
    """`static` completed for a cluster of `brokers` nodes that was started without ceremony.

    Kafka's defaults for its internal topics are three replicas, two of them in sync, so on a smaller cluster the first
    consumer group or transaction fails until someone sets them lower. `barnabas serve` calls this, so that it does not;
    what the user set stays as it is.
    """
    replicas, in_sync = str(min(3, max(1, brokers))), str(min(2, max(1, brokers)))
    wanted = {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }
    return {**wanted, **static}
