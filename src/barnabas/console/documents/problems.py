"""Machine: what is wrong in a cluster, from one sample, worst first. All sentences of the overview are written here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from barnabas.client.cluster.metadata import TopicPartitionInfo
from barnabas.console.sampling.sampler import ClusterSample
from barnabas.console.units import duration_text, size
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition

_NAMED_MAX = 10
_DISK_WARNING = 0.1
"""The free part of a disk below which a warning is shown."""
_DISK_FULL_BYTES = 1024 * 1024

Problem = dict[str, str]

_LOST_CONTROLLER: Problem = {
    "level": "bad",
    "text": "There is no active controller, or it does not answer: start controllers until a majority of them runs. The"
    " page /readyz of a node says what each controller answered.",
    "link": "/quorum",
}


def problems(sample: ClusterSample, *, controller_answers: bool = True) -> list[Problem]:
    """What is wrong, worst first, each with the page that explains it."""
    lost = [] if controller_answers or sample.cluster is None else [_LOST_CONTROLLER]
    if sample.problem:
        what = "could not be measured" if sample.cluster else "does not answer"
        return [*lost, _problem("bad", f"The cluster {what}: {sample.problem}")]
    partitions = [p for view in sample.topics.values() for p in view.partitions]
    found = [*lost, *_offline(partitions), *_brokers(sample), *_disks(sample), *_links(sample)]
    for partition, (offset, since_ms) in sorted(sample.held_back.items())[:_NAMED_MAX]:
        text = f"read_committed readers of {partition} stop at offset {offset}, {_since(since_ms, sample)}."
        found.append(_problem("warn", text, f"/topics/{partition.topic}/why"))
    found += [*_groups(sample), *_under_replicated(partitions)]
    return sorted(found, key=lambda p: p["level"] != "bad")


def _offline(partitions: Iterable[TopicPartitionInfo]) -> Iterator[Problem]:
    offline = [p for p in partitions if p.leader < 0]
    for p in offline[:_NAMED_MAX]:
        yield _problem("bad", f"{p.topic}-{p.partition} is offline: it has no leader.", f"/topics/{p.topic}")
    if len(offline) > _NAMED_MAX:
        yield _problem("bad", f"{len(offline) - _NAMED_MAX} more partitions are offline.", "/topics")


def _brokers(sample: ClusterSample) -> Iterator[Problem]:
    if sample.cluster is not None:
        for broker_id in sorted(sample.cluster.fenced):
            text = f"Broker {broker_id} has no session with the controller (fenced): it is down, starting, or cut off."
            yield _problem("bad", text)


def _disks(sample: ClusterSample) -> Iterator[Problem]:
    for broker_id, directories in sorted(sample.log_dirs.items()):
        for path, directory in directories.items():
            if isinstance(directory, KafkaError):
                yield _problem("bad", f"Broker {broker_id}: {path} is offline.")
            elif 0 <= directory.usable_bytes < min(_DISK_FULL_BYTES, directory.total_bytes):
                text = (
                    f"Broker {broker_id}: the disk of {path} is full. Partitions that the broker leads are not written."
                )
                yield _problem("bad", text)
            elif 0 <= directory.usable_bytes < directory.total_bytes * _DISK_WARNING:
                yield _problem("warn", f"Broker {broker_id}: {path} has {size(directory.usable_bytes)} left.")


def _links(sample: ClusterSample) -> Iterator[Problem]:
    for name, link in sorted(sample.links.items()):
        path = f"/links/{quote(name, safe='')}"
        if link.trouble:
            yield _problem("bad", f"The link {name}: {link.trouble}", path)
        for partition, why in link.failed:
            yield _problem("bad", f"The mirror {partition} of link {name} has failed: {why}", path)


def _groups(sample: ClusterSample) -> Iterator[Problem]:
    for group, (_, since_ms) in sorted(sample.stalled_groups.items())[:_NAMED_MAX]:
        text = f"The group {group} has members and a lag of {sample.lags[group]:,}, and commits nothing,"
        yield _problem("warn", f"{text} {_since(since_ms, sample)}.", f"/groups/{quote(group, safe='')}/why")
    by_group: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
    for (group, partition), (_, since_ms) in sample.stalled_partitions.items():
        if group not in sample.stalled_groups:
            by_group[group][partition] = since_ms
    for group, since in sorted(by_group.items())[:_NAMED_MAX]:
        named = _named(sorted(since))
        text = f"The group {group} reads on, but commits nothing for {named}, {_since(max(since.values()), sample)}."
        yield _problem("warn", text, f"/groups/{quote(group, safe='')}")


def _under_replicated(partitions: Iterable[TopicPartitionInfo]) -> Iterator[Problem]:
    """One line for all partitions that miss the same brokers: a dead broker is one problem, not a thousand."""
    by_missing: dict[tuple[int, ...], list[TopicPartition]] = defaultdict(list)
    for p in partitions:
        if p.leader >= 0 and len(p.isr) < len(p.replicas):
            by_missing[tuple(sorted(set(p.replicas) - set(p.isr)))].append(p.topic_partition)
    for missing, behind in sorted(by_missing.items(), key=lambda item: (-len(item[1]), item[0]))[:_NAMED_MAX]:
        named = _named(sorted(behind))
        which = f"{named} is" if len(behind) == 1 else f"{len(behind):,} partitions ({named}) are"
        one = len(missing) == 1
        who = f"{'broker' if one else 'brokers'} {', '.join(map(str, missing))} {'is' if one else 'are'}"
        path = f"/topics/{behind[0].topic}" if len(behind) == 1 else "/topics"
        yield _problem("warn", f"{which} under-replicated: {who} not in sync.", path)


def _named(partitions: list[TopicPartition]) -> str:
    """At most three partitions by name; the others are counted."""
    named = ", ".join(map(str, partitions[:3]))
    return named + (f" and {len(partitions) - 3:,} more" if len(partitions) > 3 else "")


def _since(since_ms: int, sample: ClusterSample) -> str:
    return f"for {duration_text(sample.at_ms - since_ms)} or longer"


def _problem(level: str, text: str, link: str = "/brokers") -> Problem:
    return {"level": level, "text": text, "link": link}
