"""Machine: splits a controller request into parts that can be decided one after the other, and joins the responses.

The entries of these requests succeed or fail each by itself. An entry that appears twice is an error of that entry, so
all entries of one key are in the same part. The partitions of one topic may be in several parts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from barnabas.protocol.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from barnabas.protocol.wire.messages.alter_configs import AlterConfigsRequest
from barnabas.protocol.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.wire.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.wire.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.wire.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.protocol.wire.schema import Message, MessageStruct


class Division(Struct, frozen=True):
    """How the requests of one API are split."""

    entries: str
    """The field of the request that is split."""
    answers: str
    """The field of the response that is joined."""
    key: Callable[[Any], Hashable]
    most: int
    """The entries of one part; with `partitions`, the partitions of one part."""
    partitions: str = ""
    """The field of an entry, a topic, that is split; empty if entries are not split."""
    results: str = ""
    """The field of an answer, a topic, that is joined."""


def _resource(entry: Any) -> Hashable:
    return (entry.resource_type, entry.resource_name)


def _quota_entity(entry: Any) -> Hashable:
    return frozenset((part.entity_type, part.entity_name) for part in entry.entity)


_TOPIC_NAMES: Final = Division("topic_names", "responses", lambda name: name, 50)
_DIVISIONS: Final[dict[type[Message], Division]] = {
    DeleteTopicsRequest: Division("topics", "responses", lambda topic: (topic.name, topic.topic_id), 50),
    CreatePartitionsRequest: Division("topics", "results", lambda topic: topic.name, 50),
    AlterClientQuotasRequest: Division("entries", "entries", _quota_entity, 500),
    AlterConfigsRequest: Division("resources", "responses", _resource, 50),
    IncrementalAlterConfigsRequest: Division("resources", "responses", _resource, 50),
    AlterPartitionReassignmentsRequest: Division(
        "topics", "responses", lambda topic: topic.name, 500, "partitions", "partitions"
    ),
    ElectLeadersRequest: Division(
        "topic_partitions", "replica_election_results", lambda topic: topic.topic, 500, "partitions", "partition_result"
    ),
}


def division_of(request: Message) -> Division | None:
    """How the request is split; None if it is small, or if its entries depend on each other."""
    division = _DIVISIONS.get(type(request))
    if isinstance(request, DeleteTopicsRequest) and not request.topics:
        division = _TOPIC_NAMES
    if division is None:
        return None
    entries = getattr(request, division.entries)
    if entries is None:
        return None
    size = sum(len(getattr(e, division.partitions)) for e in entries) if division.partitions else len(entries)
    return division if size > division.most else None


def parts_of(request: Message, division: Division) -> Iterator[Message]:
    """The requests into which `request` is split. Each is a copy of `request` with some of its entries."""
    entries = getattr(request, division.entries)
    chunks = _topics(entries, division) if division.partitions else _grouped(entries, division)
    for chunk in chunks:
        part = copy.copy(request)
        setattr(part, division.entries, chunk)
        yield part


def _grouped(entries: list[Any], division: Division) -> Iterator[list[Any]]:
    """The entries in chunks of `division.most` keys."""
    by_key: dict[Hashable, list[Any]] = {}
    for entry in entries:
        by_key.setdefault(division.key(entry), []).append(entry)
    groups = iter(by_key.values())
    while chosen := list(islice(groups, division.most)):
        yield [entry for group in chosen for entry in group]


def _topics(topics: list[MessageStruct], division: Division) -> Iterator[list[Any]]:
    """The topics in chunks of `division.most` partitions. A topic may be divided between chunks."""
    chunk: list[MessageStruct] = []
    left = division.most
    for topic in topics:
        partitions = getattr(topic, division.partitions)
        start = 0
        while True:
            piece = copy.copy(topic)
            setattr(piece, division.partitions, partitions[start : start + left])
            chunk.append(piece)
            taken = min(left, len(partitions) - start)
            start += taken
            left -= max(1, taken)  # a topic without partitions counts as one
            if left <= 0:
                yield chunk
                chunk, left = [], division.most
            if start >= len(partitions):
                break
    if chunk:
        yield chunk


def join(whole: Message, part: Message, division: Division) -> None:
    """Add the answers of a part to the response of the parts before it."""
    answers = getattr(whole, division.answers)
    for answer in getattr(part, division.answers):
        last = answers[-1] if answers else None
        if division.results and last is not None and _topic_of(last) == _topic_of(answer):
            getattr(last, division.results).extend(getattr(answer, division.results))
        else:
            answers.append(answer)


def _topic_of(answer: Any) -> str:
    """The topic of an answer about partitions."""
    return str(getattr(answer, "name", None) or getattr(answer, "topic", ""))
