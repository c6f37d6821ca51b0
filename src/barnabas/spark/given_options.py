"""Codec: the options that the user gave a query -> the value of each one, by its row in OPTIONS (`options.py`).

Options that no row has are rejected, unless they are Spark's own or settings of a Kafka client.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.client.config import check_names
from barnabas.core.config import ConfigError
from barnabas.spark.errors import OptionError
from barnabas.spark.options import OPTIONS

log = logging.getLogger("barnabas.spark")

_ROWS = {row.name: row for row in OPTIONS}

_REFUSED: Mapping[str, str] = {
    "kafka.auto.offset.reset": "use startingOffsets; a query never resets its position by itself",
    "kafka.key.deserializer": "keys are always bytes; decode them with DataFrame expressions",
    "kafka.value.deserializer": "values are always bytes; decode them with DataFrame expressions",
    "kafka.key.serializer": "keys are strings or bytes; encode them with DataFrame expressions",
    "kafka.value.serializer": "values are strings or bytes; encode them with DataFrame expressions",
    "kafka.enable.auto.commit": "the position is in Spark's checkpoint; use groupId to commit it for a group as well",
    "kafka.interceptor.classes": "the source works on whole columns and calls no interceptor",
    "kafka.transactional.id": "each task attempt needs an id of its own; use transactionalIdPrefix",
}

OF_SPARK = frozenset(
    {
        "path", "paths", "checkpointlocation", "queryname", "mode", "header", "timezone", "mergeschema",
        "serialization.format", "samplingratio", "asyncprogresstrackingenabled",
        "asyncprogresstrackingcheckpointintervalms", "asyncprogresstrackingoverridesinksupportcheck",
        "fastpathenabled", "withwatermark", "outputmode", "owner", "provider", "external", "location", "comment",
        "collation", "is_managed_location", "transient_lastddltime",
    }
)  # fmt: skip
"""Options of Spark itself that it passes to every data source, in lower case; and properties of tables."""
OF_SPARK_PREFIXES = ("spark.", "__", "option.")


class GivenOptions:
    """The options of one query, parsed by their rows when they are read."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._texts = {name.lower(): value for name, value in options.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts

    def get(self, name: str) -> Any:
        """The value of an option, or its row's default. KeyError if no row has this name, which is a bug."""
        row = _ROWS[name]
        text = self._texts.get(name.lower())
        return row.default if text is None else row.parse(name, text)

    def text(self, name: str) -> str | None:
        """The text of an option that no row has, such as those of Spark."""
        return self._texts.get(name.lower())

    def only(self, names: Iterable[str]) -> list[str]:
        """The names among `names` that the query's options contain."""
        return [name for name in names if name in self]

    def check_names(self, use: str) -> None:
        """Raise OptionError for an option that neither the table, Spark nor a Kafka client has, with the nearest name.
        An option of the table that has no effect in a query of this use (read, stream, batch, write) is logged.
        """
        rows = {row.name.lower(): row for row in OPTIONS}
        for name in self._texts:
            row = rows.get(name)
            if row is not None:
                uses = {"stream": {"read", "stream"}, "batch": {"read", "batch"}, "write": {"write"}}[use]
                if not uses & set(row.use.split(",")) and not name.startswith(
                    "kafka."
                ):  # shared by readers and writers
                    log.warning("the option %s has no effect here: it is for %s", row.name, row.use)
            elif use == "write" and name.startswith("topic.creation."):
                continue  # parsed by sink/topic_creation.py
            elif not (name.startswith(("kafka.", *OF_SPARK_PREFIXES)) or name in OF_SPARK):
                near = difflib.get_close_matches(name, sorted(rows), n=1)
                hint = f"did you mean {rows[near[0]].name}?" if near else "docs/SPARK.md has a list of all options"
                raise OptionError(f"there is no option {name}: {hint}")

    def client_settings(self) -> dict[str, str]:
        """The options that start with `kafka.`, without the prefix. Raises OptionError for settings that no client has
        or that would have no effect, and if `kafka.bootstrap.servers` is missing.
        """
        for name, reason in _REFUSED.items():
            if name in self:
                raise OptionError(f"{name} is not supported: {reason}")
        client = {n.removeprefix("kafka."): value for n, value in self._texts.items() if n.startswith("kafka.")}
        if not client.get("bootstrap.servers", "").strip():
            raise OptionError("kafka.bootstrap.servers must be given: host:port, or several separated by commas")
        try:
            check_names(client, prefix="kafka.")
        except ConfigError as error:
            raise OptionError(str(error)) from None
        return client
