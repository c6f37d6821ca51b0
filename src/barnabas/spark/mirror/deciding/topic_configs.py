"""Machine: the configs of a copy, from the configs of its source topic.

Copied are all configs that can be set, are not secret, do not come from a broker's file, and are not excluded. A config
that has its default in the source cluster is left to the target cluster, or, with `use.defaults.from=source`, set to
the source's default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from barnabas.client.values import AlterOp, ConfigChange, ConfigEntry, ConfigSource

Selects = Callable[[str], bool]


def copied_configs(entries: Iterable[ConfigEntry], selects: Selects) -> list[ConfigEntry]:
    return [
        entry
        for entry in entries
        if not entry.is_read_only
        and not entry.is_sensitive
        and entry.source is not ConfigSource.STATIC_BROKER
        and selects(entry.name)
    ]


def creation_configs(
    entries: Iterable[ConfigEntry], selects: Selects, *, use_source_defaults: bool
) -> dict[str, str | None]:
    """The configs with which the copy is created."""
    return {
        entry.name: entry.value
        for entry in copied_configs(entries, selects)
        if use_source_defaults or not entry.is_default
    }


def config_changes(
    source: Iterable[ConfigEntry], target: Mapping[str, ConfigEntry], selects: Selects, *, use_source_defaults: bool
) -> list[ConfigChange]:
    """What has to change so that the copy has the configs of its source. Kafka's connector sends all of them each
    time; only those that differ are sent here."""
    changes = []
    for entry in copied_configs(source, selects):
        present = target.get(entry.name)
        is_set = present is not None and present.source is ConfigSource.TOPIC
        if entry.is_default and not use_source_defaults:
            if is_set:
                changes.append(ConfigChange(entry.name, None, AlterOp.DELETE))
        elif present is None or not is_set or present.value != entry.value:
            changes.append(ConfigChange(entry.name, entry.value, AlterOp.SET))
    return changes
