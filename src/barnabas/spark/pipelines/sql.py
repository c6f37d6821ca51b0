"""Codec: the statements of a pipeline's SQL file.

Spark's own parser knows these statements, but a classic session cannot run them. Therefore the clauses before AS are
read here, and the query after AS stays text for `spark.sql`:

    CREATE STREAMING TABLE [IF NOT EXISTS] name [(columns)] [USING format] [PARTITIONED BY (...)] [CLUSTER BY (...)]
           [COMMENT '...'] [TBLPROPERTIES (...)] [AS query]
    CREATE MATERIALIZED VIEW ...  the same, with a query
    CREATE [TEMPORARY] VIEW name [COMMENT '...'] AS query
    CREATE FLOW name [COMMENT '...'] AS INSERT INTO target BY NAME query
    CREATE FLOW name [COMMENT '...'] AS AUTO CDC INTO target changes
    CREATE STREAMING TABLE ...  FLOW AUTO CDC changes
    SET key = value      for the flows that follow in the file
    USE [SCHEMA] name    is refused: set `database` in the spec

where changes is

    FROM STREAM(source) KEYS (columns) SEQUENCE BY expression [APPLY AS DELETE WHEN condition]
         [COLUMNS (columns) | COLUMNS * EXCEPT (columns)] [STORED AS SCD TYPE 1]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.spark.pipelines.errors import DefinitionError

_TOKEN: Final = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))
      | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<name>`(?:[^`]|``)*`|[^\W\d]\w*)
      | (?P<space>\s+)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)

_CHANGE_CLAUSES: Final = {("SEQUENCE", "BY"), ("APPLY", "AS"), ("COLUMNS", "("), ("COLUMNS", "*"), ("STORED", "AS")}


@dataclass(frozen=True, slots=True)
class SqlDataset:
    """A streaming table, a materialized view or a view. A streaming table without a query is fed by flows."""

    kind: str
    name: str
    line: int
    query: str | None = None
    columns: str | None = None
    format: str | None = None
    comment: str | None = None
    partition_columns: tuple[str, ...] = ()
    cluster_columns: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SqlFlow:
    """CREATE FLOW name AS INSERT INTO target BY NAME query."""

    name: str
    target: str
    line: int
    query: str


@dataclass(frozen=True, slots=True)
class SqlChangeFlow:
    """AUTO CDC INTO. `arguments` have the names of create_auto_cdc_flow in Python."""

    line: int
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SqlSetting:
    """SET key = value."""

    key: str
    value: str


SqlStatement = SqlDataset | SqlFlow | SqlChangeFlow | SqlSetting


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int

    @property
    def word(self) -> str:
        """The keyword, or an empty string if the token cannot be a keyword."""
        return self.text.upper() if self.kind == "name" and not self.text.startswith("`") else ""


def parse_statements(text: str, path: str) -> list[SqlStatement]:
    """Parse a SQL file. `path` is only for messages. Raises DefinitionError."""
    return [statement for tokens in _split(text) for statement in _Statement(text, tokens, path).parse()]


def quoted_name(name: str) -> tuple[str, ...]:
    """The parts of a name such as `db.table`, without back-quotes."""
    parts = re.findall(r"`((?:[^`]|``)*)`|([^.`]+)", name)
    return tuple(quoted.replace("``", "`") or plain.strip() for quoted, plain in parts)


def _split(text: str) -> Iterator[list[_Token]]:
    """The tokens of each statement, without comments and spaces."""
    statement: list[_Token] = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "sign"
        if kind in ("comment", "space"):
            continue
        if match[0] == ";":
            if statement:
                yield statement
            statement = []
        else:
            statement.append(_Token(kind, match[0], match.start()))
    if statement:
        yield statement


class _Statement:
    """One statement, and the position of the next token."""

    def __init__(self, text: str, tokens: list[_Token], path: str) -> None:
        self._text = text
        self._tokens = tokens
        self._path = path
        self._next = 0
        self.line = text.count("\n", 0, tokens[0].start) + 1

    def parse(self) -> list[SqlStatement]:
        """The statement; two for a table that is defined together with its flow."""
        if self._accept("SET"):
            return [self._setting()]
        if self._accept("USE"):
            raise self._error("USE is not supported; set catalog and database in the pipeline's spec")
        self._expect("CREATE")
        if self._accept("FLOW"):
            return [self._flow()]
        if self._accept("STREAMING"):
            self._expect("TABLE")
            table = self._dataset("streaming table")
            if not self._accept("FLOW"):
                return [table]
            self._expect("AUTO")
            self._expect("CDC")
            return [table, self._changes(None, table.name)]
        if self._accept("MATERIALIZED"):
            self._expect("VIEW")
            return [self._dataset("materialized view")]
        self._accept("TEMPORARY") or self._accept("TEMP")
        if self._accept("VIEW"):
            return [self._dataset("temporary view")]
        raise self._error(
            f"CREATE {self._peek_text()} is not a statement of a pipeline; there are STREAMING TABLE, "
            "MATERIALIZED VIEW, TEMPORARY VIEW and FLOW"
        )

    # -- statements --------------------------------------------------------------------------------------------------

    def _setting(self) -> SqlSetting:
        rest = self._text[self._start() : self._end()]
        key, sign, value = rest.partition("=")
        if not sign:
            raise self._error("write SET key = value")
        return SqlSetting(key.strip().strip("`'\""), value.strip().strip("'\""))

    def _flow(self) -> SqlFlow | SqlChangeFlow:
        name = self._name()
        if self._accept("COMMENT"):
            self._string()
        self._expect("AS")
        if self._accept("AUTO"):
            self._expect("CDC")
            self._expect("INTO")
            return self._changes(name, self._name())
        self._expect("INSERT")
        self._expect("INTO")
        target = self._name()
        self._expect("BY")
        self._expect("NAME")
        return SqlFlow(name, target, self.line, self._query())

    def _dataset(self, kind: str) -> SqlDataset:
        if self._accept("IF"):
            self._expect("NOT")
            self._expect("EXISTS")
        name = self._name()
        columns = self._parenthesis() if self._peek_text() == "(" else None
        found: dict[str, object] = {}
        while self._next < len(self._tokens) and self._peek() not in ("AS", "FLOW"):
            self._clause(found)
        query = self._query() if self._accept("AS") else None
        if query is None and kind != "streaming table":
            raise self._error(f"the {kind} {name} has no query: write AS SELECT ...")
        return SqlDataset(kind, name, self.line, query, columns, **found)  # type: ignore[arg-type]  # `found` has the values by field

    def _clause(self, found: dict[str, object]) -> None:
        if self._accept("USING"):
            found["format"] = self._name()
        elif self._accept("COMMENT"):
            found["comment"] = self._string()
        elif self._accept("PARTITIONED"):
            self._expect("BY")
            found["partition_columns"] = self._names()
        elif self._accept("CLUSTER"):
            self._expect("BY")
            found["cluster_columns"] = self._names()
        elif self._accept("TBLPROPERTIES"):
            found["properties"] = self._properties()
        else:
            raise self._error(f"{self._peek_text()!r} is not expected here; the query begins with AS")

    def _changes(self, name: str | None, target: str) -> SqlChangeFlow:
        """The clauses after AUTO CDC INTO target."""
        self._expect("FROM")
        self._expect("STREAM")
        in_parenthesis = self._peek_text() == "("
        source = self._parenthesis() if in_parenthesis else self._name()
        self._expect("KEYS")
        found: dict[str, Any] = {"name": name, "target": target, "source": source, "keys": self._names()}
        while self._next < len(self._tokens):
            self._change_clause(found)
        if "sequence_by" not in found:
            raise self._error("SEQUENCE BY is missing: it orders the changes of a key")
        return SqlChangeFlow(self.line, found)

    def _change_clause(self, found: dict[str, Any]) -> None:
        if self._accept("SEQUENCE"):
            self._expect("BY")
            found["sequence_by"] = self._expression()
        elif self._accept("APPLY"):
            for word in ("AS", "DELETE", "WHEN"):
                self._expect(word)
            found["apply_as_deletes"] = self._expression()
        elif self._accept("COLUMNS"):
            if self._peek_text() == "*":
                self._take()
                self._expect("EXCEPT")
                found["except_column_list"] = self._names()
            else:
                found["column_list"] = self._names()
        elif self._accept("STORED"):
            for word in ("AS", "SCD", "TYPE"):
                self._expect(word)
            found["stored_as_scd_type"] = self._take().text
        else:
            raise self._error(f"{self._peek_text()!r} is not a clause of AUTO CDC")

    def _expression(self) -> str:
        """The text up to the next clause of AUTO CDC."""
        begin = self._next
        depth = 0
        while self._next < len(self._tokens) and (depth or not self._begins_clause()):
            depth += {"(": 1, ")": -1}.get(self._peek_text(), 0)
            self._next += 1
        if self._next == begin:
            raise self._error("an expression is missing")
        last = self._tokens[self._next - 1]
        return self._text[self._tokens[begin].start : last.start + len(last.text)]

    def _begins_clause(self) -> bool:
        following = self._tokens[self._next + 1].text.upper() if self._next + 1 < len(self._tokens) else ""
        return (self._peek(), following) in _CHANGE_CLAUSES

    # -- parts of statements -----------------------------------------------------------------------------------------

    def _query(self) -> str:
        if self._next >= len(self._tokens):
            raise self._error("the query is missing")
        return self._text[self._start() : self._end()]

    def _name(self) -> str:
        parts = []
        while True:
            token = self._take()
            if token.kind != "name":
                raise self._error(f"a name is expected, not {token.text!r}")
            parts.append(token.text)
            if self._peek_text() != ".":
                return ".".join(parts)
            self._take()

    def _string(self) -> str:
        token = self._take()
        if token.kind != "string":
            raise self._error(f"a string is expected, not {token.text!r}")
        return _unquoted(token.text)

    def _parenthesis(self) -> str:
        begin = self._take()
        depth = 1
        while depth:
            token = self._take()
            depth += {"(": 1, ")": -1}.get(token.text, 0)
        return self._text[begin.start + 1 : token.start].strip()

    def _names(self) -> tuple[str, ...]:
        inside = self._parenthesis()
        names = tuple(part.strip().strip("`") for part in inside.split(","))
        if not all(re.fullmatch(r"\w+", name) for name in names):
            raise self._error(f"({inside}) must be names of columns")
        return names

    def _properties(self) -> dict[str, str]:
        tokens = [t for t in next(_split(self._parenthesis()), []) if t.text != "="]
        words: list[str] = []
        properties: dict[str, str] = {}
        for token in [*tokens, _Token("sign", ",", 0)]:
            if token.text != ",":
                words.append(token.text)
                continue
            if len(words) < 2:
                raise self._error("TBLPROPERTIES are written as ('key' = 'value', ...)")
            properties["".join(map(_unquoted, words[:-1]))] = _unquoted(words[-1])
            words = []
        return properties

    # -- tokens ------------------------------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._tokens[self._next].word if self._next < len(self._tokens) else ""

    def _peek_text(self) -> str:
        return self._tokens[self._next].text if self._next < len(self._tokens) else ""

    def _take(self) -> _Token:
        if self._next >= len(self._tokens):
            raise self._error("the statement ends too early")
        self._next += 1
        return self._tokens[self._next - 1]

    def _accept(self, word: str) -> bool:
        accepted = self._peek() == word
        self._next += accepted
        return accepted

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._error(f"{word} is expected, not {self._peek_text() or 'the end of the statement'!r}")

    def _start(self) -> int:
        return self._tokens[self._next].start

    def _end(self) -> int:
        last = self._tokens[-1]
        return last.start + len(last.text)

    def _error(self, what: str) -> DefinitionError:
        return DefinitionError(f"{self._path}, line {self.line}: {what}")


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] in "'\"":
        return re.sub(r"\\(.)", r"\1", text[1:-1].replace(text[0] * 2, text[0]))
    return text
