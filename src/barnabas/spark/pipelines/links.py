"""Machine: flows that are linked by a topic: one writes it to a sink, the other one reads it.

    flow `clean` -> sink (topic "orders") ... topic "orders" -> flow `count`        `count` comes after `clean`

The graph knows the link from the options of the sink and of the reader, if both name the same cluster. A sink without
the option `topic` takes the topic from each row: it may write any topic of its cluster. The flows that read topics of
the cluster come after it, whatever becomes of it. Topics may form a circle, which tables cannot: a flow that reads the
records that it has sent to be tried again. Links within a circle order nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from barnabas.spark.errors import OptionError
from barnabas.spark.pipelines.graph import OutputKind, OutputNode, ResolvedFlow
from barnabas.spark.source.options import subscription_of
from barnabas.spark.source.positions import SourceSubscription

TOPIC_FORMAT: Final = "barnabas"
_SERVERS: Final = "kafka.bootstrap.servers"


@dataclass(frozen=True, slots=True)
class TopicsRead:
    """The topics that one source of a flow reads, and the bootstrap servers of their cluster."""

    servers: frozenset[str]
    subscription: SourceSubscription

    @property
    def names(self) -> tuple[str, ...]:
        """The topics that the subscription names; none for a pattern."""
        return tuple(sorted({*self.subscription.topics, *(tp.topic for tp in self.subscription.assigned)}))

    def covers(self, topic: str) -> bool:
        pattern = self.subscription.pattern
        return topic in self.names if pattern is None else re.fullmatch(pattern, topic) is not None


def topics_read(options: Mapping[str, str]) -> TopicsRead | None:
    """What a source with these options reads. None if the options are wrong, which an error of the query says."""
    try:
        return TopicsRead(_servers(options), subscription_of(options))
    except OptionError:
        return None


def link_by_topics(
    flows: Mapping[str, ResolvedFlow], reads: Mapping[str, Iterable[TopicsRead]]
) -> dict[str, ResolvedFlow]:
    """The flows, each after those whose tables and topics it reads. `reads` has the topics that each flow reads."""
    upstream = {name: set(flow.upstream) for name, flow in flows.items()}
    links = _links(flows, reads, _writes)
    perhaps = _links(flows, reads, _may_write)
    all_links = {name: set(names) for name, names in upstream.items()}
    for writer, reader in links:
        all_links[reader].add(writer)
    for writer, reader in links:
        if not _reaches(all_links, writer, reader):
            upstream[reader].add(writer)
    before = {name: set(names) for name, names in upstream.items()}
    for writer, reader in perhaps:
        before[reader].add(writer)
    perhaps = [(writer, reader) for writer, reader in perhaps if not _reaches(before, writer, reader)]
    linked = {
        name: replace(
            flow,
            upstream=frozenset(upstream[name]),
            perhaps_upstream=frozenset(writer for writer, reader in perhaps if reader == name) - upstream[name],
        )
        for name, flow in flows.items()
    }
    ordered = {name: upstream[name] | flow.perhaps_upstream for name, flow in linked.items()}
    return {name: linked[name] for name in _sources_first(ordered)}


def _links(
    flows: Mapping[str, ResolvedFlow],
    reads: Mapping[str, Iterable[TopicsRead]],
    writes: Callable[[OutputNode, TopicsRead], bool],
) -> list[tuple[str, str]]:
    """Each writer of topics with each other flow that reads them."""
    return [
        (writer, reader)
        for writer, flow in flows.items()
        for reader in flows
        if reader != writer and any(writes(flow.target, read) for read in reads.get(reader, ()))
    ]


def _writes(output: OutputNode, read: TopicsRead) -> bool:
    """Whether a sink writes a topic that the source reads."""
    topic = _topic(output)
    return topic is not None and read.covers(topic.strip()) and bool(_servers(output.options) & read.servers)


def _may_write(output: OutputNode, read: TopicsRead) -> bool:
    """Whether the rows of a sink name their topics, in the cluster of the source."""
    is_sink = output.kind is OutputKind.SINK and (output.format or "").lower() == TOPIC_FORMAT
    return is_sink and _topic(output) is None and bool(_servers(output.options) & read.servers)


def _topic(output: OutputNode) -> str | None:
    """The option `topic` of a sink of topics."""
    if output.kind is not OutputKind.SINK or (output.format or "").lower() != TOPIC_FORMAT:
        return None
    return {name.lower(): text for name, text in output.options.items()}.get("topic")


def _servers(options: Mapping[str, str]) -> frozenset[str]:
    given = {name.lower(): text for name, text in options.items()}.get(_SERVERS, "")
    named = (server.strip().lower() for server in given.split(","))
    return frozenset(re.sub(r"^localhost(?=:)", "127.0.0.1", server) for server in named if server)


def _reaches(upstream: Mapping[str, Iterable[str]], name: str, wanted: str) -> bool:
    """Whether `wanted` is before `name`, directly or through other flows."""
    seen: set[str] = set()
    unseen = [name]
    while unseen:
        for before in upstream.get(unseen.pop(), ()):
            if before == wanted:
                return True
            if before not in seen:
                seen.add(before)
                unseen.append(before)
    return False


def _sources_first(upstream: Mapping[str, set[str]]) -> list[str]:
    """The flows in the given order, except that each comes after the flows before it. There is no circle."""
    ordered: dict[str, None] = {}
    while len(ordered) < len(upstream):
        free = [name for name in upstream if name not in ordered and upstream[name] & upstream.keys() <= ordered.keys()]
        assert free, "tables form no circle, and links within a circle are left out"
        ordered[free[0]] = None
    return list(ordered)
