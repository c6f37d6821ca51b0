"""Machine: which topics, groups and topic configs are mirrored.

Patterns are Java's regular expressions and match whole names. A list of patterns is one pattern with `|` between them,
as in Kafka's `DefaultTopicFilter`, `DefaultGroupFilter` and `DefaultConfigPropertyFilter`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.spark.connectors.transforms.java_patterns import compile_java_pattern
from barnabas.spark.mirror.naming.policies import (
    ReplicationPolicy,
    is_cycle,
    is_heartbeats_topic,
    is_internal_topic,
)

TOPICS_DEFAULT: Final = ".*"
TOPICS_EXCLUDE_DEFAULT: Final = r"mm2.*\.internal,.*\.replica,__.*"
GROUPS_DEFAULT: Final = ".*"
GROUPS_EXCLUDE_DEFAULT: Final = "console-consumer-.*,connect-.*,__.*"
CONFIGS_EXCLUDE_DEFAULT: Final = (
    r"follower\.replication\.throttled\.replicas,leader\.replication\.throttled\.replicas,"
    r"message\.timestamp\.difference\.max\.ms,log\.message\.timestamp\.before\.max\.ms,"
    r"log\.message\.timestamp\.after\.max\.ms,message\.timestamp\.type,unclean\.leader\.election\.enable,"
    r"min\.insync\.replicas"
)


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Names that one list of patterns selects and another does not."""

    include: Sequence[str]
    exclude: Sequence[str] = ()
    _include: re.Pattern[str] | None = field(init=False, repr=False, compare=False)
    _exclude: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises ValueError for a pattern that is not valid."""
        object.__setattr__(self, "_include", compile_names(self.include))
        object.__setattr__(self, "_exclude", compile_names(self.exclude))

    def selects(self, name: str) -> bool:
        return _matches(self._include, name) and not _matches(self._exclude, name)


def compile_names(patterns: Sequence[str]) -> re.Pattern[str] | None:
    """One pattern for all of them; None if there are none. Raises ValueError."""
    for pattern in patterns:
        compile_java_pattern(pattern)  # so that the error names this pattern only
    return compile_java_pattern("|".join(patterns)) if patterns else None


def _matches(pattern: re.Pattern[str] | None, name: str) -> bool:
    return pattern is not None and pattern.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Which topics of the source cluster are copied."""

    policy: ReplicationPolicy
    source_alias: str
    target_alias: str
    topics: Callable[[str], bool]
    heartbeats: bool = True
    """`heartbeats.replication.enabled`: heartbeats are copied, whatever `topics` says."""

    def selects(self, topic: str) -> bool:
        wanted = self.topics(topic) or (self.heartbeats and is_heartbeats_topic(self.policy, topic))
        return (
            wanted
            and not is_internal_topic(self.policy, topic)
            and not is_cycle(self.policy, topic, self.source_alias, self.target_alias)
        )

    def target_of(self, topic: str) -> str:
        return self.policy.remote_topic(self.source_alias, topic)
