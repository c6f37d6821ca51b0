"""Machine: the entries of responses for the entries of requests that are refused.

Most responses mirror their requests: a topic with partitions is answered by a topic with the same partitions, each with
an error code. `mirrored` builds such an answer from the schema of the response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from barnabas.core.errors import ErrorCode
from barnabas.core.work import Pauses
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.schema import Message, MessageStruct, StructMeta

_INDEXES: Final = ("partition_index", "index", "partition", "partition_id")
_PARTITIONS: Final = ("partitions", "partition_indexes", "partition_data")
_AT_ONCE: Final = 500
"""Partitions between two pauses."""
_CODES: Final = ("error_code", "partition_error_code")
_NAMES: Final = {"topic_name": "name"}
"""Fields of responses whose fields in requests have other names."""


def mirrored(entry: Any, answer_type: type[MessageStruct], code: ErrorCode, **fixed: object) -> Any:
    """The answer to `entry` in which every partition has the error. `fixed` are further fields of partitions."""
    return _mirrored(entry, _indexes(entry), answer_type, code, fixed)


async def mirrored_with_pauses(
    entries: Iterable[Any], answer_type: type[MessageStruct], code: ErrorCode, **fixed: object
) -> list[Any]:
    """As `mirrored`, for entries that have many partitions in all."""
    pauses = Pauses()
    answers: list[Any] = []
    for entry in entries:
        indexes = _indexes(entry)
        answer = _mirrored(entry, indexes[:_AT_ONCE], answer_type, code, fixed)
        for start in range(_AT_ONCE, len(indexes), _AT_ONCE):
            await pauses.after(_AT_ONCE)
            more = _mirrored(entry, indexes[start : start + _AT_ONCE], answer_type, code, fixed)
            for name in _lists(answer_type):
                getattr(answer, name).extend(getattr(more, name))
        answers.append(answer)
        await pauses.after(1 + len(indexes) % _AT_ONCE)
    return answers


def partition_count(entries: Iterable[Any]) -> int:
    """The number of partitions in entries of a request."""
    return sum(len(getattr(entry, name, None) or ()) for entry in entries for name in _PARTITIONS)


def _lists(answer_type: type[MessageStruct]) -> list[str]:
    """The fields that are lists of structs."""
    fields = answer_type.__schema__.fields
    return [field.name for field in fields if field.kind == "array" and isinstance(field.element, StructMeta)]


def _mirrored(
    entry: Any,
    indexes: Iterable[int],
    answer_type: type[MessageStruct],
    code: ErrorCode,
    fixed: Mapping[str, object],
) -> Any:
    answer: Any = answer_type()
    for field in answer_type.__schema__.fields:
        name = field.name
        if field.kind == "array" and isinstance(field.element, StructMeta):
            setattr(answer, name, _refused_partitions(field.element, indexes, code, fixed))
        elif name == "error_code":
            answer.error_code = code
        elif name == "error_message":
            answer.error_message = code.message
        elif hasattr(entry, name):
            setattr(answer, name, getattr(entry, name))
        elif name in _NAMES and hasattr(entry, _NAMES[name]):
            setattr(answer, name, getattr(entry, _NAMES[name]))
    return answer


def _indexes(entry: Any) -> list[int]:
    """The partitions of an entry of a request, which are numbers or structs."""
    for name in _PARTITIONS:
        partitions = getattr(entry, name, None)
        if partitions is None:
            continue
        if not partitions or isinstance(partitions[0], int):
            return list(partitions)
        field = next(name for name in _INDEXES if hasattr(partitions[0], name))
        return [getattr(partition, field) for partition in partitions]
    return []


def _refused_partitions(kind: Any, indexes: Iterable[int], code: ErrorCode, fixed: Mapping[str, object]) -> list[Any]:
    """An entry of the type `kind` with the error for each partition. There can be 100,000 of them."""
    names = {field.name for field in kind.__schema__.fields}
    index_name = next(name for name in _INDEXES if name in names)
    given: dict[str, object] = {next(name for name in _CODES if name in names): code, **fixed}
    if "error_message" in names:
        given["error_message"] = code.message
    return [kind(**{index_name: index}, **given) for index in indexes]


def element_type(answer: type[MessageStruct], field_name: str) -> type[MessageStruct]:
    """The type of the entries of a list of a response."""
    for field in answer.__schema__.fields:
        if field.name == field_name:
            assert isinstance(field.element, StructMeta)
            return field.element
    raise AssertionError(f"{answer.__name__} has no list {field_name}")


def refuse_entries(entries: str, answers: str, **fixed: object) -> Callable[[Any, int, ErrorCode], Message]:
    """A function that builds the refusal of a whole request whose response has no top-level error code: each of the
    `entries` of the request is mirrored in the `answers` of the response."""

    def refuse(request: Any, version: int, code: ErrorCode) -> Message:
        response: Any = APIS[ApiKey(request.__schema__.key)].response()
        kind = element_type(type(response), answers)
        setattr(response, answers, [mirrored(entry, kind, code, **fixed) for entry in getattr(request, entries) or ()])
        result: Message = response
        return result

    return refuse


def refuse_markers(request: Any, version: int, code: ErrorCode) -> Message:
    """WriteTxnMarkers: the partitions are in the topics of markers."""
    response: Any = APIS[ApiKey.WRITE_TXN_MARKERS].response()
    kind: Any = element_type(type(response), "markers")
    for marker in request.markers:
        topics = [mirrored(topic, element_type(kind, "topics"), code) for topic in marker.topics]
        response.markers.append(kind(producer_id=marker.producer_id, topics=topics))
    result: Message = response
    return result


def refuse_log_dirs(request: Any, version: int, code: ErrorCode) -> Message:
    """AlterReplicaLogDirs: the partitions are in the topics of directories."""
    response: Any = APIS[ApiKey.ALTER_REPLICA_LOG_DIRS].response()
    kind = element_type(type(response), "results")
    response.results = [mirrored(topic, kind, code) for entry in request.dirs for topic in entry.topics]
    result: Message = response
    return result


def refuse_elections(request: Any, version: int, code: ErrorCode) -> Message:
    """ElectLeaders: version 0 has no top-level error code."""
    response: Any = APIS[ApiKey.ELECT_LEADERS].response()
    if version > 0:
        response.error_code = code
    else:
        for topic in request.topic_partitions or ():
            kind: Any = element_type(type(response), "replica_election_results")
            part: Any = element_type(kind, "partition_result")
            results = [part(partition_id=i, error_code=code, error_message=code.message) for i in topic.partitions]
            response.replica_election_results.append(kind(topic=topic.topic, partition_result=results))
    result: Message = response
    return result


refuse_share_state = refuse_entries("topics", "results")
"""The requests among brokers about the state of share partitions."""
