"""Machine: the regular expressions to which the members of a consumer group subscribe: when they are resolved.

A heartbeat that subscribes to an expression does not wait for its topics. It requests a resolution of all expressions
of the group, by a timer without delay. The resolution stores the topics of each expression, and increments the group
epoch if they changed; the members get the new topics with later heartbeats. The rules are those of Kafka's
GroupMetadataManager (`maybeUpdateRegularExpressions`, `handleRegularExpressionsResult`):

    a resolution is requested if         the member subscribes to an expression to which no other member subscribes,
                                         or an expression of the group is not resolved,
                                         or topics were created since the last resolution,
                                         or the last one is older than group.consumer.regex.refresh.interval.ms
    and only if                          the last one is older than `REFRESH_INTERVAL_MIN_MS`

With an authorizer a resolution leaves out the topics that the client of the latest heartbeat may not describe.

"The last resolution" is that of the expressions that are resolved now; without any there is no last resolution.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from barnabas.server.coordination.group.consumer.group import ConsumerGroup, ResolvedRegex
from barnabas.server.coordination.operation import WriteOperation
from barnabas.server.coordination.topic_regexes import matching_topics

if TYPE_CHECKING:
    from barnabas.server.coordination.group.consumer.manager import ConsumerGroupManager

REFRESH_INTERVAL_MIN_MS: Final = 10_000


class ExpressionUpdate(Enum):
    """The effect of a heartbeat on the member's expression."""

    NONE = "the member subscribes to the same expression"
    CHANGED = "the topics of the member's new expression are not known yet"
    RESOLVED = "the member's new topics are known"


def update_expressions(
    manager: ConsumerGroupManager, op: WriteOperation, group: ConsumerGroup, before: str, now: str
) -> ExpressionUpdate:
    """Handle the heartbeat of a member that subscribed to `before`, and whose stored expression is `now`; the empty
    text stands for no expression."""
    last_ms = group.last_resolution_ms()
    update = ExpressionUpdate.NONE
    refresh = False
    if before != now:
        update = ExpressionUpdate.CHANGED
        delete_unused_expressions(manager, op, group)
        if now and group.expressions.get(now) == 1:
            refresh = True
        elif not now or now in group.regexes:
            update = ExpressionUpdate.RESOLVED
    if not len(group.expressions):
        return update
    if last_ms is not None:
        if op.now_ms <= last_ms + REFRESH_INTERVAL_MIN_MS:
            return update
        refresh = (
            refresh
            or group.expressions_version.value < manager.created_version
            or op.now_ms > last_ms + manager.config.group_consumer_regex_refresh_interval_ms
        )
    if refresh or any(pattern not in group.regexes for pattern in group.expressions):
        op.schedule(("consumer-regex", group.group_id), 0, if_absent=True)
    return update


def resolve_expressions(manager: ConsumerGroupManager, op: WriteOperation, group: ConsumerGroup) -> None:
    """Store the topics of all expressions of the group. Does nothing if the shell has not matched an expression with
    the newest topics yet; the next heartbeat does that."""
    found: dict[str, tuple[str, ...]] = {}
    may_describe = manager.visible.get(group.group_id)
    for pattern in sorted(group.expressions):
        topics = matching_topics(manager.catalog, pattern)
        if topics is None:
            manager.unprepared.add(group.group_id)
            return
        found[pattern] = topics if may_describe is None else tuple(name for name in topics if may_describe(name))
    manager.visible.pop(group.group_id, None)
    manager.unprepared.discard(group.group_id)
    changed = False
    for pattern, topics in found.items():
        known = group.regexes.get(pattern)
        changed = changed or topics != (() if known is None else known.topics)
        resolved = ResolvedRegex(topics, manager.topics_version, op.now_ms)
        manager.apply_and_write(op, group.regex_record(pattern, resolved))
    group.expressions_version.value = manager.topics_version
    manager.raise_epoch(op, group, "a regular expression matches other topics" if changed else "")


def delete_unused_expressions(manager: ConsumerGroupManager, op: WriteOperation, group: ConsumerGroup) -> None:
    """Delete the resolved expressions to which no member subscribes."""
    for pattern in sorted(group.regexes):
        if pattern not in group.expressions:
            manager.apply_and_write(op, group.regex_record(pattern, None))
