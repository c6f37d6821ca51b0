"""Codec: the text of one option of `format("barnabas")` -> its value.

Each function takes the name of the option and its text, and raises OptionError that names the option and a valid value.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable
from enum import Enum
from typing import Any

from barnabas.core.ids import TopicPartition
from barnabas.spark.errors import OptionError
from barnabas.spark.source.positions import (
    EARLIEST,
    LATEST,
    AtEdge,
    AtOffsets,
    Boundary,
    SourceSubscription,
    flatten,
    parse_assignment,
    without_notes,
)

_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS_BYTES = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_EDGES = {"earliest": EARLIEST, "latest": LATEST}

Parse = Callable[[str, str], Any]
"""(name of the option, its text) -> its value. Raises OptionError that names the option and a valid value."""


def text(_name: str, given: str) -> str:
    return given


def positive(name: str, text: str) -> int:
    text = text.strip()
    if not re.fullmatch(r"[0-9]+", text) or int(text) == 0:
        raise OptionError(f"{name} must be an integer above 0, got {text!r}")
    return int(text)


def milliseconds(name: str, text: str) -> int:
    text = text.strip()
    if not re.fullmatch(r"[0-9]+", text):
        raise OptionError(f"{name} must be milliseconds, 0 or more, got {text!r}")
    return int(text)


def timestamp_ms(name: str, text: str) -> int:
    text = text.strip()
    if not re.fullmatch(r"[0-9]+", text):
        raise OptionError(f"{name} must be milliseconds since 1970, got {text!r}")
    return int(text)


def boolean(name: str, text: str) -> bool:
    text = text.strip()
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name} must be true or false, got {text!r}")
    return text.lower() == "true"


def duration_ms(name: str, text: str) -> int:
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS_MS:
        raise OptionError(f"{name} must be a time such as 500ms, 30s or 15m, got {text.strip()!r}")
    return int(match[1]) * _UNITS_MS[match[2]]


def size(name: str, text: str) -> int:
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS_BYTES or int(match[1]) == 0:
        raise OptionError(f"{name} must be a size above 0 such as 1048576, 512k or 64m, got {text.strip()!r}")
    return int(match[1]) * _UNITS_BYTES[match[2]]


def one_of(choices: type[Enum]) -> Parse:
    def parse(name: str, text: str) -> Enum:
        try:
            return choices(text.strip().lower())
        except ValueError:
            values = [choice.value for choice in choices]
            near = difflib.get_close_matches(text.strip().lower(), values, n=1)
            hint = f": did you mean {near[0]}?" if near else ""
            raise OptionError(f"{name} must be one of {', '.join(values)}, got {text!r}{hint}") from None

    return parse


def schema_version(name: str, text: str) -> int | None:
    """A version of a subject; None is the latest."""
    if text.strip().lower() == "latest":
        return None
    try:
        return positive(name, text)
    except OptionError:
        raise OptionError(f"{name} must be latest or the number of a version, got {text!r}") from None


def replication_factor(name: str, text: str) -> int:
    return -1 if text.strip() == "-1" else positive(name, text)


def name_list(_name: str, text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def topics(name: str, text: str) -> SourceSubscription:
    names = tuple(dict.fromkeys(name_list(name, text)))
    if not names:
        raise OptionError(f"{name} names no topic; give one, or several separated by commas")
    return SourceSubscription(topics=names)


def topic_pattern(name: str, text: str) -> SourceSubscription:
    if not text.strip():
        raise OptionError(f"{name} is empty; give a regular expression such as orders-.*")
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"{name} {text!r} is not a regular expression: {error}") from None
    return SourceSubscription(pattern=text)


def assignment(_name: str, text: str) -> SourceSubscription:
    return SourceSubscription(assigned=parse_assignment(text))


def offsets(name: str, text: str) -> Boundary:
    edge = _EDGES.get(text.strip().lower())
    if edge is not None:
        return AtEdge(edge)
    given = _per_partition(text, name, "earliest, latest or ")
    if any(offset < EARLIEST for offset in given.values()):
        raise OptionError(f"{name} has an offset below -2: {text}")
    return AtOffsets(given)


def timestamps(name: str, text: str) -> dict[TopicPartition, int]:
    given = _per_partition(text, name)
    if any(timestamp < 0 for timestamp in given.values()):
        raise OptionError(f"{name} has a negative timestamp: {text}")
    return given


def _per_partition(text: str, name: str, words: str = "") -> dict[TopicPartition, int]:
    try:
        document = json.loads(text)
    except ValueError:
        raise OptionError(f'{name} must be {words}JSON such as {{"topicA": {{"0": 23}}}}, got {text!r}') from None
    offsets = flatten(without_notes(document) if isinstance(document, dict) else document, name)
    if not offsets:
        raise OptionError(f"{name} names no partition: {text}")
    return offsets


def group_id(_name: str, text: str) -> str:
    if not text.strip():
        raise OptionError("groupId is empty; name a consumer group, or leave the option out")
    return text.strip()


def segments_root(name: str, text: str) -> str:
    """The directory in which executors find the brokers' data directories. `{broker}` stands for a broker's id,
    `{path}` for the path of a data directory on its broker.
    """
    given = text.strip()
    try:
        given.format(broker=0, path="/")
        known = True
    except (KeyError, IndexError, ValueError):
        known = False
    if not known or not given.startswith(("/", "{path}")):
        raise OptionError(
            f"{name} must be an absolute path, in which {{broker}} stands for the broker's id and {{path}} for the"
            f" broker's path of the directory, such as /mnt/{{broker}}{{path}}; got {text!r}"
        )
    return given


def segments_store(name: str, text: str) -> str:
    """The directory or the bucket with the objects of tiered storage."""
    given = text.strip()
    bucket = given.removeprefix("s3://").partition("/")[0]
    if not given.startswith("/") and (not given.startswith("s3://") or not bucket):
        raise OptionError(
            f"{name} must be an absolute path, such as the brokers' rsm.config.storage.root, or s3://BUCKET/ and then"
            f" their rsm.config.key.prefix; got {text!r}"
        )
    return given


def name(option: str, text: str) -> str:
    """A name that may not be empty."""
    if not text.strip():
        raise OptionError(f"{option} is empty; give a name, or leave the option out")
    return text.strip()


def sink_topic(name: str, text: str) -> str:
    if not text.strip():
        raise OptionError(
            f"{name} is empty; name the topic to write to, or leave the option out and give a topic column"
        )
    return text
