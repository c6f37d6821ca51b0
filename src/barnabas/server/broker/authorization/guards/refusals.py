"""Machine: the entries of responses for the entries of requests that are refused.

Most responses mirror their requests: a topic with partitions is answered by a topic with the same partitions, each with
an error code. `mirrored` builds such an answer from the schema of the response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.schema import Message, MessageField, MessageStruct, StructMeta

_INDEXES: Final = ("partition_index", "index", "partition", "partition_id")
_PARTITIONS: Final = ("partitions", "partition_indexes", "partition_data")
_CODES: Final = ("error_code", "partition_error_code")
_NAMES: Final = {"topic_name": "name"}
"""Fields of responses whose fields in requests have other names."""


def mirrored(entry: Any, answer_type: type[MessageStruct], code: ErrorCode, **fixed: object) -> Any:
    """The answer to `entry` in which every partition has the error. `fixed` are further fields of partitions."""
    answer: Any = answer_type()
    for field in answer_type.__schema__.fields:
        name = field.name
        if field.kind == "array" and isinstance(field.element, StructMeta):
            setattr(answer, name, [_partition(field, index, code, fixed) for index in _indexes(entry)])
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
        if partitions is not None:
            return [p if isinstance(p, int) else _index(p) for p in partitions]
    return []


def _index(partition: Any) -> int:
    for name in _INDEXES:
        if hasattr(partition, name):
            found: int = getattr(partition, name)
            return found
    raise AssertionError(f"{type(partition).__name__} has no index of a partition")


def _partition(field: MessageField, index: int, code: ErrorCode, fixed: dict[str, object]) -> Any:
    kind: Any = field.element
    names = {part.name for part in kind.__schema__.fields}
    given: dict[str, object] = {next(name for name in _INDEXES if name in names): index}
    given[next(name for name in _CODES if name in names)] = code
    if "error_message" in names:
        given["error_message"] = code.message
    return kind(**given, **fixed)


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
