"""Codec: the options of a connector -> the value of each one, by the rows of the connector's own table.

Names are those of Kafka Connect, Debezium or the JDBC connectors, where these have one, and are case-insensitive, since
Spark gives names of options in lower case. An option without a row is refused with the name that is nearest to it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from barnabas.spark import option_parsers as parse_as
from barnabas.spark.errors import OptionError
from barnabas.spark.given_options import OF_SPARK, OF_SPARK_PREFIXES


class ConnectorOption(Struct, frozen=True):
    """One option: its name, what it means, the parser of its text, and its value if it is not given."""

    name: str
    meaning: str
    parse: parse_as.Parse = parse_as.text
    default: Any = None


class ConnectorOptions:
    """The options of one query, parsed by their rows when they are read.

    `prefixes` are the starts of names that other parts check, such as those of transforms. `refused` has names that are
    known elsewhere and have no meaning here, with what to do instead; a name that ends with a star is a prefix.
    """

    def __init__(
        self,
        texts: Mapping[str, str],
        rows: Iterable[ConnectorOption],
        *,
        prefixes: tuple[str, ...] = (),
        refused: Mapping[str, str] | None = None,
    ) -> None:
        self._texts = {name.lower(): value for name, value in texts.items()}
        self._rows = {row.name.lower(): row for row in rows}
        self._prefixes = prefixes
        self._refused = {name.lower(): reason for name, reason in (refused or {}).items()}

    @property
    def texts(self) -> Mapping[str, str]:
        """The options as they were given, with their names in lower case."""
        return self._texts

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts

    def get(self, name: str) -> Any:
        """The value of an option, or its row's default. KeyError if no row has this name, which is a bug."""
        row = self._rows[name.lower()]
        text = self._texts.get(name.lower())
        return row.default if text is None else row.parse(row.name, text)

    def require(self, name: str, purpose: str) -> Any:
        """The value of an option that has no default. Raises OptionError, with the purpose, if it is not given."""
        if not self._texts.get(name.lower(), "").strip():
            raise OptionError(f"{self._rows[name.lower()].name} must be given: {purpose}")
        return self.get(name)

    def under(self, *prefixes: str) -> dict[str, str]:
        """The options whose names begin with one of these prefixes, with their whole names in lower case."""
        return {name: text for name, text in self._texts.items() if name.startswith(prefixes)}

    def check_names(self) -> None:
        """Raise OptionError for an option that this connector does not have."""
        for name in self._texts:
            if name in self._rows or name in OF_SPARK or name.startswith((*self._prefixes, *OF_SPARK_PREFIXES)):
                continue
            reason = self._reason(name)
            if reason is not None:
                raise OptionError(f"{name} is not supported: {reason}")
            near = difflib.get_close_matches(name, sorted(self._rows), n=1)
            hint = f"did you mean {self._rows[near[0]].name}?" if near else "docs/CONNECT.md has a list of all options"
            raise OptionError(f"there is no option {name}: {hint}")

    def _reason(self, name: str) -> str | None:
        for pattern, reason in self._refused.items():
            if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
                return reason
        return None


def patterns(name: str, text: str) -> tuple[re.Pattern[str], ...]:
    """Regular expressions separated by commas, each of which matches a whole name in any case."""
    found = []
    for part in parse_as.name_list(name, text):
        try:
            found.append(re.compile(part, re.IGNORECASE))
        except re.error as error:
            raise OptionError(f"{name}: {part!r} is not a regular expression: {error}") from None
    if not found:
        raise OptionError(f"{name} is empty: give a name or a regular expression, or leave the option out")
    return tuple(found)


def port_number(name: str, text: str) -> int:
    """A TCP port."""
    number = parse_as.positive(name, text)
    if number > 65_535:
        raise OptionError(f"{name} must be a port from 1 to 65535, got {number}")
    return number


def milliseconds(name: str, text: str) -> int:
    """A time in milliseconds, 0 for none; a unit may follow the number, as in 30s."""
    return parse_as.duration_ms(name, text)


def is_json_without_schemas(config: Mapping[str, str], part: str) -> bool:
    """Whether the keys or values (`key.converter`, `value.converter`) are JSON without a schema."""
    name = config.get(part, "JsonConverter").strip()
    schemas = config.get(f"{part}.schemas.enable", "true").strip().lower()
    return name.rpartition(".")[2] == "JsonConverter" and schemas == "false"
