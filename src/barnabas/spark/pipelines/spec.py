"""Codec: the text of `spark-pipeline.yml` and the values in it.

The fields are those of Spark's `spark-pipelines` command (pyspark/pipelines/cli.py), which refuses every other field.
Settings of our own are under `configuration`, with the prefix `barnabas.pipelines.`; Spark's command ignores them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from barnabas.core.reprs import repr_without
from barnabas.spark.pipelines.errors import SpecError

SPEC_FILE_NAMES: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
FIELDS: Final = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")
OWN_PREFIX: Final = "barnabas.pipelines."

_WILDCARD: Final = re.compile(r"[*?[]")
_DURATION: Final = re.compile(r"\s*(\d+)\s*(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?)?\s*", re.IGNORECASE)
_UNIT_MS: Final = {"ms": 1, "mi": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """The settings of our own. Durations are in milliseconds."""

    trigger_interval_ms: int = 1_000
    """`barnabas.pipelines.trigger`: the time from the start of one micro-batch of a flow to the next."""
    refresh_interval_ms: int = 60_000
    """`barnabas.pipelines.refresh`: the time between two computations of a materialized view by `run --continuous`."""
    group_id: str = "{pipeline}.{flow}"
    """`barnabas.pipelines.group.id`: the consumer group of each flow's progress; empty: no group."""
    restarts_max: int | None = None
    """`barnabas.pipelines.restarts`: how often in a row a flow that fails is started again; None: as its cause says."""


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """The contents of one spec file."""

    name: str
    storage: str
    catalog: str | None = None
    database: str | None = None
    configuration: Mapping[str, str] = field(default_factory=dict)
    libraries: Sequence[str] = ()
    settings: PipelineSettings = PipelineSettings()

    __repr__ = repr_without("configuration")

    def spark_configuration(self) -> dict[str, str]:
        """The configuration without the settings of our own."""
        return {key: value for key, value in self.configuration.items() if not key.startswith(OWN_PREFIX)}

    def local_storage(self, directory: Path) -> Path | None:
        """The storage directory if it is on this machine, else None. A path without a scheme is relative to
        `directory`, which is the directory of the spec file.
        """
        parts = urlsplit(self.storage)
        if parts.scheme == "file":
            return Path(unquote(parts.path))
        return None if parts.scheme else directory / self.storage


def parse_spec(text: str, path: str = "spark-pipeline.yml") -> PipelineSpec:
    """Parse the text of a spec file. `path` is only for messages. Raises SpecError."""
    data = _load(text, path)
    for name in data:
        if name not in FIELDS:
            raise SpecError(f"{path}: there is no field {name!r}: {_nearest(str(name), FIELDS, 'did you mean')}")
    for name in ("name", "storage"):
        if not data.get(name):
            raise SpecError(f"{path}: the field {name!r} is missing")
    for name in ("name", "storage", "catalog", "database", "schema"):
        if data.get(name) is not None and not isinstance(data[name], str):
            raise SpecError(f"{path}: the field {name!r} must be a string, not {_kind(data[name])}")
    configuration = _configuration(data.get("configuration"), path)
    return PipelineSpec(
        name=data["name"],
        storage=data["storage"],
        catalog=data.get("catalog"),
        database=data.get("database", data.get("schema")),
        configuration=configuration,
        libraries=tuple(_libraries(data.get("libraries"), path)),
        settings=_settings(configuration, path),
    )


def parse_duration_ms(text: str) -> int:
    """The milliseconds in `500 ms`, `10 seconds`, `1m`; a number alone is in seconds. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as '500 ms', '10 seconds' or '1 minute'")
    unit = (match[2] or "s").lower()
    return int(match[1]) * (_UNIT_MS["ms"] if unit.startswith(("ms", "mil")) else _UNIT_MS[unit[0]])


def parse_count(text: str) -> int:
    """A whole number, 0 or more. Raises ValueError."""
    if not text.strip().isdecimal():
        raise ValueError(f"{text!r} is not a whole number, 0 or more")
    return int(text)


def _load(text: str, path: str) -> Mapping[str, Any]:
    import yaml

    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SpecError(f"{path} is not YAML: {error}") from error
    if not isinstance(data, dict):
        raise SpecError(f"{path} has no fields; it needs at least name and storage")
    return data


def _configuration(given: Any, path: str) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise SpecError(f"{path}: configuration must be a mapping, not {_kind(given)}")
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            shown = str(value).lower() if isinstance(value, bool) else value
            raise SpecError(
                f'{path}: Spark takes only strings in configuration; write {key}: "{shown}" (it is {_kind(value)})'
            )
    return dict(given)


def _libraries(given: Any, path: str) -> list[str]:
    if given is None:
        return []
    if not isinstance(given, list):
        raise SpecError(f"{path}: libraries must be a list, not {_kind(given)}")
    patterns = []
    for entry in given:
        pattern = entry.get("glob", {}).get("include") if _is_glob(entry) else None
        if not isinstance(pattern, str):
            raise SpecError(f"{path}: each of libraries is written as  - glob: {{include: transformations/**}}")
        patterns.append(_checked_pattern(pattern, path))
    return patterns


def _is_glob(entry: Any) -> bool:
    return isinstance(entry, dict) and set(entry) == {"glob"} and isinstance(entry["glob"], dict)


def _checked_pattern(pattern: str, path: str) -> str:
    """The glob pattern of `Path.glob`. Spark allows the path of a file, or of a folder with `/**` after it."""
    if not _WILDCARD.search(pattern):
        return pattern
    if pattern.endswith("/**") and not _WILDCARD.search(pattern[:-3]):
        return pattern + "/*"
    raise SpecError(f"{path}: the pattern {pattern!r} must be the path of a file, or of a folder followed by /**")


def _settings(configuration: Mapping[str, str], path: str) -> PipelineSettings:
    values: dict[str, Any] = {}
    for key, text in configuration.items():
        if not key.startswith(OWN_PREFIX):
            continue
        if key not in _OWN:
            raise SpecError(f"{path}: there is no setting {key}: {_nearest(key, list(_OWN), 'did you mean')}")
        name, parse = _OWN[key]
        try:
            values[name] = parse(text)
        except ValueError as error:
            raise SpecError(f"{path}: {key}: {error}") from error
    return PipelineSettings(**values)


_OWN: Final[Mapping[str, tuple[str, Any]]] = {
    f"{OWN_PREFIX}trigger": ("trigger_interval_ms", parse_duration_ms),
    f"{OWN_PREFIX}refresh": ("refresh_interval_ms", parse_duration_ms),
    f"{OWN_PREFIX}group.id": ("group_id", str),
    f"{OWN_PREFIX}restarts": ("restarts_max", parse_count),
}


def _nearest(name: str, known: Sequence[str], question: str) -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"{question} {near[0]}?" if near else f"there are {', '.join(known)}"


def _kind(value: Any) -> str:
    return {bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "a mapping"}.get(
        type(value), type(value).__name__
    )
