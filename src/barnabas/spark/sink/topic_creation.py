"""Codec: the options `topic.creation.*` -> the partitions, replicas and configs of topics that do not exist yet.

    topic.creation.default.partitions=3               topic.creation.groups=logs
    topic.creation.default.replication.factor=-1      topic.creation.logs.include=shop\\.log\\..*
    topic.creation.default.cleanup.policy=compact     topic.creation.logs.retention.ms=86400000

The names are those of Kafka Connect (KIP-158). A topic has the settings of the first group whose `include` matches its
whole name and whose `exclude` does not, else those of `default`. -1 stands for the default of the brokers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from barnabas.spark.errors import OptionError

PREFIX: Final = "topic.creation."
_DEFAULT: Final = "default"
_OWN: Final = ("include", "exclude", "partitions", "replication.factor")


class TopicGroup(Struct, frozen=True):
    """The settings of new topics whose names match."""

    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)
    include: tuple[re.Pattern[str], ...] = ()
    exclude: tuple[re.Pattern[str], ...] = ()

    def matches(self, topic: str) -> bool:
        return any(pattern.fullmatch(topic) for pattern in self.include) and not any(
            pattern.fullmatch(topic) for pattern in self.exclude
        )


class TopicCreation(Struct, frozen=True):
    """The settings of all new topics of a query."""

    default: TopicGroup
    groups: tuple[TopicGroup, ...] = ()

    def group_of(self, topic: str) -> TopicGroup:
        """The settings of one topic."""
        return next((group for group in self.groups if group.matches(topic)), self.default)


def parse_topic_creation(options: Mapping[str, str]) -> TopicCreation | None:
    """The settings among all options of a query; None if there are none. Raises OptionError."""
    lowered = {name.lower(): text.strip() for name, text in options.items()}
    given = {name.removeprefix(PREFIX): text for name, text in lowered.items() if name.startswith(PREFIX)}
    if not given:
        return None
    names = [name.strip().lower() for name in given.pop("groups", "").split(",") if name.strip()]
    parts: dict[str, dict[str, str]] = {name: {} for name in (_DEFAULT, *names)}
    for key, text in given.items():
        group, dot, name = key.partition(".")
        if group not in parts or not dot:
            raise OptionError(
                f"{PREFIX}{key} names no group: the groups are {', '.join(parts)}; {PREFIX}groups lists others"
            )
        parts[group][name] = text
    first = parts.pop(_DEFAULT)
    missing = [name for name in ("partitions", "replication.factor") if name not in first]
    if missing:
        raise OptionError(
            f"{PREFIX}{_DEFAULT}.{missing[0]} must be given with {PREFIX}*: a number, -1 for the brokers'"
        )
    if first.keys() & {"include", "exclude"}:
        raise OptionError(f"{PREFIX}{_DEFAULT} is for all topics of no group: leave include and exclude out")
    default = _group(_DEFAULT, first, None)
    return TopicCreation(default, tuple(_group(name, texts, default) for name, texts in parts.items()))


def _group(name: str, texts: Mapping[str, str], default: TopicGroup | None) -> TopicGroup:
    if default is not None and not texts.get("include"):
        raise OptionError(f"{PREFIX}{name}.include must be given: regular expressions of topics")
    return TopicGroup(
        _number(name, texts, "partitions", -1 if default is None else default.partitions),
        _number(name, texts, "replication.factor", -1 if default is None else default.replication_factor),
        {key: text for key, text in texts.items() if key not in _OWN},
        _patterns(name, texts, "include"),
        _patterns(name, texts, "exclude"),
    )


def _number(group: str, texts: Mapping[str, str], name: str, default: int) -> int:
    text = texts.get(name, str(default))
    if text != "-1" and (not text.isascii() or not text.isdecimal() or not 0 < int(text[:9]) == int(text)):
        raise OptionError(
            f"{PREFIX}{group}.{name} must be a number from 1, or -1 for that of the brokers, got {text!r}"
        )
    return int(text)


def _patterns(group: str, texts: Mapping[str, str], name: str) -> tuple[re.Pattern[str], ...]:
    found = []
    for part in texts.get(name, "").split(","):
        try:
            found += [re.compile(part.strip())] if part.strip() else []
        except re.error as error:
            raise OptionError(f"{PREFIX}{group}.{name}: {part!r} is not a regular expression: {error}") from None
    return tuple(found)
