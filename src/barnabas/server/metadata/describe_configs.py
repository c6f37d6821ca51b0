"""Machine: builds the results of DescribeConfigs: value, source, synonyms, type, documentation.

The rules are those of Kafka's `ConfigHelper`. The value of a sensitive config, and the values of its synonyms, are
null. A dynamic config that is in no table (for example of a plug-in) is treated as sensitive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from barnabas.core.config import ConfigDef, ConfigKey, default_of, value_to_text
from barnabas.protocol.wire.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsSynonym
from barnabas.server.metadata.config_source import ConfigValueSource
from barnabas.server.metadata.config_view import ConfigView, Synonym, broker_synonym_values
from barnabas.server.metadata.configs.tables import BROKER_CONFIGS, CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from barnabas.server.metadata.image.small import (
    ConfigResourceKey,
    ResourceType,
    broker_resource,
    group_resource,
    topic_resource,
)


class DescribeOptions(Struct, frozen=True):
    """The options of the request. `names` is None for all configs."""

    names: Collection[str] | None = None
    include_synonyms: bool = False
    include_documentation: bool = False
    version: int = 4

    def wants(self, name: str) -> bool:
        return self.names is None or name in self.names


def describe_topic(view: ConfigView, topic: str, options: DescribeOptions) -> list[DescribeConfigsResourceResult]:
    """Every config of a topic, by name. The caller checks that the topic exists."""
    own = view.dynamic(topic_resource(topic))
    return _describe_table(view, TOPIC_CONFIGS, own, ConfigValueSource.DYNAMIC_TOPIC_CONFIG, options)


def describe_group(view: ConfigView, group_id: str, options: DescribeOptions) -> list[DescribeConfigsResourceResult]:
    """Every config of a group, by name."""
    own = view.dynamic(group_resource(group_id))
    results = _describe_table(view, GROUP_CONFIGS, own, ConfigValueSource.GROUP_CONFIG, options)
    if options.include_synonyms:
        for row in results:
            if not GROUP_CONFIGS[row.name].synonyms:  # without a broker config as synonym, the default is its own
                default = value_to_text(default_of(GROUP_CONFIGS[row.name]))
                row.synonyms.append(
                    DescribeConfigsSynonym(name=row.name, value=default, source=ConfigValueSource.DEFAULT_CONFIG)
                )
    return results


def describe_client_metrics(
    view: ConfigView, subscription: str, options: DescribeOptions
) -> list[DescribeConfigsResourceResult]:
    """Every config of a client-metrics subscription, by name."""
    own = view.dynamic(ConfigResourceKey(ResourceType.CLIENT_METRICS, subscription))
    return _describe_table(view, CLIENT_METRICS_CONFIGS, own, ConfigValueSource.CLIENT_METRICS_CONFIG, options)


def describe_broker(view: ConfigView, options: DescribeOptions) -> list[DescribeConfigsResourceResult]:
    """Every broker config of the node of `view`, sorted by name. Configs of plug-ins and of single listeners are
    included if they are set."""
    extra = {name for _, layer in view.layers for name in layer}
    names = sorted({key.name for key in BROKER_CONFIGS if not key.internal} | extra)
    results = []
    for name in filter(options.wants, names):
        key = BROKER_CONFIGS.get(name) or _listener_key(name)
        synonyms = broker_synonym_values(view, name)
        default = None if key is None else value_to_text(default_of(key))
        value = synonyms[0].value if synonyms else default
        results.append(_result(name, value, key, synonyms, options, read_only=key is None or not key.is_dynamic))
    return results


def describe_broker_defaults(view: ConfigView, options: DescribeOptions) -> list[DescribeConfigsResourceResult]:
    """The configs that are set as dynamic defaults of all brokers (the BROKER resource with the empty name)."""
    results = []
    for name, value in sorted(view.dynamic(broker_resource(None)).items()):
        if options.wants(name):
            key = BROKER_CONFIGS.get(name)
            synonyms = [Synonym(name, value, ConfigValueSource.DYNAMIC_DEFAULT_BROKER_CONFIG)]
            results.append(_result(name, value, key, synonyms, options, read_only=key is None or not key.is_dynamic))
    return results


def _describe_table(
    view: ConfigView, table: ConfigDef, own: Mapping[str, str], source: ConfigValueSource, options: DescribeOptions
) -> list[DescribeConfigsResourceResult]:
    results = []
    for key in table:
        if not options.wants(key.name) or (key.internal and key.name not in own):
            continue
        synonyms = broker_synonym_values(view, key.synonyms[0]) if key.synonyms else []
        if key.name in own:
            synonyms.insert(0, Synonym(key.name, own[key.name], source))
        value = value_to_text(view.stored(key, own, source).value)
        results.append(_result(key.name, value, key, synonyms, options, read_only=False))
    return results


def _result(
    name: str,
    value: str | None,
    key: ConfigKey | None,
    synonyms: Iterable[Synonym],
    options: DescribeOptions,
    *,
    read_only: bool,
) -> DescribeConfigsResourceResult:
    sensitive = key is None or key.is_sensitive
    listed = [
        DescribeConfigsSynonym(name=each.name, value=None if sensitive else each.value, source=each.source)
        for each in synonyms
    ]
    source = ConfigValueSource(listed[0].source) if listed else ConfigValueSource.DEFAULT_CONFIG
    return DescribeConfigsResourceResult(
        name=name,
        value=None if sensitive else value,
        read_only=read_only,
        is_default=options.version == 0 and source is ConfigValueSource.DEFAULT_CONFIG,
        config_source=source,
        is_sensitive=sensitive,
        synonyms=listed if options.include_synonyms else [],
        config_type=0 if key is None else key.type,
        documentation=key.doc if key is not None and options.include_documentation else None,
    )


def _listener_key(name: str) -> ConfigKey | None:
    """The `ConfigKey` of `<config>`, if `name` is `listener.name.<listener>.[<mechanism>.]<config>` of a known config;
    None otherwise."""
    if not name.startswith("listener.name."):
        return None
    plain = name.split(".", 3)[-1]
    return BROKER_CONFIGS.get(plain) or BROKER_CONFIGS.get(plain.partition(".")[2])
