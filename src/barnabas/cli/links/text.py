"""Shell: tables about cluster links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.cli.output import emit, print_table, size_text

if TYPE_CHECKING:
    from barnabas.client.admin.links import LinkDescription, MirrorChange, MirrorStatus
    from barnabas.client.links.drill import DrillReport
    from barnabas.client.links.verifying import Comparison


def print_links(links: Mapping[str, LinkDescription], statuses: Sequence[MirrorStatus]) -> None:
    from barnabas.client.admin.links import lag_of_link

    rows = []
    for name, link in sorted(links.items()):
        states = Counter(mirror.state for mirror in link.mirrors)
        shown = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "no mirrors"
        lag = lag_of_link(link, statuses)
        rows.append((name, link.link.bootstrap_servers, shown, lag, link.coordinator_id, link.trouble or "-"))
    columns = ["LINK", "SOURCE", "PARTITIONS", "LAG>", "COORDINATOR", "TROUBLE"]
    print_table(columns, rows, empty="no links")


def print_described(link: LinkDescription, statuses: Sequence[MirrorStatus]) -> None:
    definition = link.link
    facts = [
        ("link", definition.name),
        ("source", definition.bootstrap_servers),
        ("source cluster", definition.source_cluster_id),
        ("topics", _patterns(definition.topics, definition.topics_exclude)),
        ("groups", _patterns(definition.groups, definition.groups_exclude)),
        ("ACL rules", " ".join(definition.acls) or "-"),
        ("client settings", _settings(definition.client)),
        ("settings", _settings(definition.settings)),
        ("coordinator", link.coordinator_id),
        ("trouble", link.trouble or "-"),
    ]
    print_table(["", ""], facts)
    emit("")
    now = {status.partition: status for status in statuses}
    rows = []
    from barnabas.core.ids import TopicPartition

    for mirror in sorted(link.mirrors, key=lambda mirror: (mirror.topic or mirror.topic_id, mirror.partition)):
        status = now.pop(TopicPartition(mirror.topic or "", mirror.partition), None)
        rows.append(
            (
                mirror.topic or f"(deleted {mirror.topic_id})",
                mirror.partition,
                mirror.state if status is None else status.state,
                None if status is None else status.known_lag,
                None if status is None or not status.skipped_records else status.skipped_records,
                None if mirror.offset < 0 else mirror.offset,
                (status.reason if status is not None else "") or mirror.reason or "-",
            )
        )
    rows += [(p.topic, p.partition, s.state, s.known_lag, None, None, s.reason or "-") for p, s in sorted(now.items())]
    columns = ["TOPIC", "PARTITION", "STATE", "LAG>", "SKIPPED>", "STOPPED AT>", "REASON"]
    print_table(columns, rows, empty="no mirrors")


def _patterns(include: Sequence[str], exclude: Sequence[str]) -> str:
    text = " ".join(include) or "-"
    return f"{text}, but not {' '.join(exclude)}" if exclude else text


def _settings(settings: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(settings.items())) or "-"


def print_changes(changes: Sequence[MirrorChange], *, dry_run: bool) -> None:
    rows = [
        (
            change.topic,
            change.partitions if change.partitions >= 0 else None,
            "refused" if change.error else change.state,
            str(change.error or "-"),
        )
        for change in changes
    ]
    columns = ["TOPIC", "PARTITIONS>", "WOULD BECOME" if dry_run else "STATE", "REASON"]
    print_table(columns, rows, empty="no topics")


def print_comparisons(found: Sequence[Comparison], *, missing: str = "LAG", empty: str = "no mirrors") -> None:
    """Print a table. `missing` is the heading of the records that the other side has and this cluster does not have."""
    rows = [
        (
            one.partition.topic,
            one.partition.partition,
            one.start,
            one.end,
            one.batches,
            size_text(one.size_bytes),
            one.missing,
            one.error or ("equal" if one.differs_at is None else f"differs at offset {one.differs_at}"),
        )
        for one in found
    ]
    columns = ["TOPIC", "PARTITION", "FROM>", "TO>", "BATCHES>", "SIZE>", f"{missing}>", "RESULT"]
    print_table(columns, rows, empty=empty)


def print_drill(report: DrillReport) -> None:
    definition = report.link.link
    emit(f"Drill of link {definition.name} (source {definition.bootstrap_servers}); nothing was changed.")
    emit("")
    lost = "an unknown number of" if report.lost_records is None else report.lost_records
    emit(f"A failover now would lose {lost} records that the source has acknowledged.")
    if report.oldest_answer_ms >= 0:
        emit(
            f"The source last answered {report.oldest_answer_ms / 1000:.1f} s ago; what it has acknowledged since then "
            "would be lost too."
        )
    emit("")
    rows = [
        (s.partition.topic, s.partition.partition, s.state, None if s.lag < 0 else s.source_high_watermark, s.known_lag)
        for s in report.mirrors
    ]
    print_table(["TOPIC", "PARTITION", "STATE", "SOURCE END>", "LAG>"], rows, title="mirrors")
    emit("")
    moves = [
        (g.group_id, g.partition.topic, g.partition.partition, g.on_source, g.here, g.behind) for g in report.groups
    ]
    columns = ["GROUP", "TOPIC", "PARTITION", "OFFSET ON SOURCE>", "WOULD GO ON AT>", "READ AGAIN>"]
    print_table(columns, moves, title="groups")
    if report.comparisons:
        emit("")
        equal = sum(one.is_equal for one in report.comparisons)
        batches = sum(one.batches for one in report.comparisons)
        emit(f"{equal} of {len(report.comparisons)} partitions have the source's bytes ({batches} batches compared).")
    emit("")
    for problem in report.problems:
        emit(f"PROBLEM: {problem}")
    if not report.problems:
        emit("No problems found.")
