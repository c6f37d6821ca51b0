"""Machine: the transforms of topics, RegexRouter and TimestampRouter, and the predicates.

Topics repeat in a batch, so each one is matched once. Source: the classes of these names in
org.apache.kafka.connect.transforms, and in its package predicates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute

from barnabas.spark.connectors.transforms.date_patterns import format_ms, parse_pattern
from barnabas.spark.connectors.transforms.errors import TransformDataError
from barnabas.spark.connectors.transforms.java_patterns import compile_java_pattern, parse_java_replacement
from barnabas.spark.connectors.transforms.records import null_rows, part_field, replace_column
from barnabas.spark.connectors.transforms.settings import Settings, Transform
from barnabas.spark.connectors.transforms.texts import milliseconds

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

Predicate = Callable[[Any], Any]
"""From a batch of records to a boolean column without nulls."""


def build_regex_router(settings: Settings) -> Transform:
    """RegexRouter: another topic, if the expression matches the whole name. As in Java, `Matcher.matches` decides, and
    `Matcher.replaceFirst` replaces, which may find a shorter match.
    """
    try:
        pattern = compile_java_pattern(settings.text("regex"))
    except ValueError as error:
        raise settings.refuse("regex", f"a regular expression ({error})") from None
    try:
        replacement = parse_java_replacement(settings.text("replacement"), pattern)
    except ValueError as error:
        raise settings.refuse("replacement", f"a replacement text ({error})") from None

    def route(topic: str) -> str:
        return pattern.sub(replacement, topic, count=1) if pattern.fullmatch(topic) else topic

    def apply(batch: Any) -> Any:
        field = part_field(batch.schema, "topic")
        return replace_column(batch, field, _by_topic(batch, route, pa.string()).cast(field.type))

    return apply


def _by_topic(batch: Any, function: Callable[[str], Any], type_: Any) -> Any:
    """A column of the function's result for each row's topic. A topic that is null gives null."""
    part_field(batch.schema, "topic")
    encoded = batch.column("topic").dictionary_encode()
    found = pa.array([None if topic is None else function(topic) for topic in encoded.dictionary.to_pylist()], type_)
    return found.take(encoded.indices)


def build_timestamp_router(settings: Settings) -> Transform:
    """TimestampRouter: a topic with the timestamp in its name."""
    topic_format = settings.text("topic.format")
    try:
        pattern = parse_pattern(settings.text("timestamp.format"))
    except ValueError as error:
        raise settings.refuse("timestamp.format", f"a pattern of java.text.SimpleDateFormat ({error})") from None

    def apply(batch: Any) -> Any:
        field = part_field(batch.schema, "topic")
        times = batch.column(batch.schema.get_field_index(part_field(batch.schema, "timestamp").name))
        if times.null_count:
            raise TransformDataError("TimestampRouter needs a timestamp, but that of the record is null")
        times = milliseconds(times) if pa.types.is_timestamp(times.type) else times.cast(pa.int64())
        topics = batch.column("topic").cast(pa.string())
        parts: list[Any] = []
        for index, text in enumerate(topic_format.split("${topic}")):
            parts += [topics] if index else []
            for inner, literal in enumerate(text.split("${timestamp}")):
                parts += [format_ms(times, pattern)] if inner else []
                parts.append(pa.scalar(literal))
        routed = _pc.binary_join_element_wise(*parts, "")
        if not isinstance(routed, pa.Array):  # a format without placeholders
            routed = pa.array([routed.as_py()] * batch.num_rows, pa.string())
        return replace_column(batch, field, routed.cast(field.type))

    return apply


def build_has_header_key(settings: Settings) -> Predicate:
    """HasHeaderKey: the record has a header of this name."""
    name = settings.text("name")

    def matches(batch: Any) -> Any:
        index = batch.schema.get_field_index("headers")
        if index < 0 or pa.types.is_null(batch.schema.field(index).type):
            return pa.array([False] * batch.num_rows)
        column = batch.column(index)
        rows = _pc.list_parent_indices(column).filter(_pc.equal(column.flatten().field(0), name))
        return _pc.is_in(pa.array(range(batch.num_rows), pa.int64()), value_set=rows.cast(pa.int64()))

    return matches


def build_record_is_tombstone(settings: Settings) -> Predicate:
    """RecordIsTombstone: the value is null."""
    return lambda batch: null_rows(batch, "value")


def build_topic_name_matches(settings: Settings) -> Predicate:
    """TopicNameMatches: the expression matches the whole name of the topic."""
    try:
        pattern = compile_java_pattern(settings.text("pattern"))
    except ValueError as error:
        raise settings.refuse("pattern", f"a regular expression ({error})") from None
    return lambda batch: _by_topic(batch, lambda topic: pattern.fullmatch(topic) is not None, pa.bool_()).fill_null(
        False
    )
