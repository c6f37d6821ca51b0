"""Shell: notices which tables a query reads while its function runs on a classic session.

Spark Connect sends an unresolved plan to the server, which resolves the names of a pipeline in the order that it needs.
A classic session resolves a name as soon as a function uses it. Therefore the methods that take the name of a table
are wrapped while a function runs: before such a method is called, the evaluator makes the table available.

The wrappers also give each `format("barnabas")` source of a stream a consumer group, and let each source wait for
topics that do not exist yet (`missingTopics=wait`), if the function has not set these options.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from barnabas.spark.options import MissingTopics

SourceOptions = Callable[[Mapping[str, str]], None]
"""Called with the options of each source of `format("barnabas")`, in lower case, when it is loaded."""

Provide = Callable[[str, bool], str | None]
"""Called with the name of a table, and whether it is read as a stream, before the table is read. Returns the name of a
temporary view to read instead, or None.
"""

_RELATION: Final = re.compile(r"'UnresolvedRelation \[([^\]]*)\], \[[^\]]*\], (true|false)")
_CTE: Final = re.compile(r"CTE \[([^\]]*)\]")
_GROUP_OPTIONS: Final = frozenset({"groupid", "group.id", "kafka.group.id"})


def relations(tree: str) -> list[tuple[str, bool]]:
    """The tables that a parsed plan reads, and whether as a stream, from Spark's text of the plan."""
    common = {name.strip() for names in _CTE.findall(tree) for name in names.split(",")}
    found: dict[tuple[str, bool], None] = {}
    for parts, streaming in _RELATION.findall(tree):
        name = ".".join(f"`{part.strip()}`" for part in parts.split(","))
        if name.strip("`") not in common:
            found[name, streaming == "true"] = None
    return list(found)


def renamed(query: str, name: str, instead: str) -> str:
    """The query with a name of several parts, `db.table`, replaced by the name of a temporary view."""
    parts = [re.escape(part) for part in name.strip("`").split("`.`")]
    pattern = r"\s*\.\s*".join(f"`?{part}`?" for part in parts)
    return re.sub(rf"(?<![\w.`]){pattern}(?![\w`])", lambda _: f"`{instead}`", query, flags=re.IGNORECASE)


@contextmanager
def working_directory(directory: Path) -> Iterator[None]:
    """Spark's own command loads the files, and calls their functions, in the directory of the spec."""
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of a class or module while this context is entered."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def intercepted(spark: Any, provide: Provide, group_id: str, on_source: SourceOptions) -> Iterator[None]:
    """While this context is entered, `provide` is called before a table is read in this thread, and `on_source` when a
    source of topics is loaded.
    """
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.session import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    thread = threading.get_ident()
    parser = spark._jsparkSession.sessionState().sqlParser()

    def before_table(method: Callable[..., Any], streaming: bool) -> Callable[..., Any]:
        def wrapper(self: Any, tableName: str, *more: Any, **named: Any) -> Any:
            instead = provide(tableName, streaming) if threading.get_ident() == thread else None
            return method(self, instead or tableName, *more, **named)

        return wrapper

    def before_sql(method: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(self: Any, sqlQuery: str, *more: Any, **named: Any) -> Any:
            query = sqlQuery
            if threading.get_ident() == thread:
                for name, streaming in relations(parser.parsePlan(query).toString()):
                    instead = provide(name, streaming)
                    if instead is not None and "`.`" in name:
                        query = renamed(query, name, instead)
            return method(self, query, *more, **named)

        return wrapper

    with ExitStack() as stack:
        for cls, streaming in ((DataFrameReader, False), (DataStreamReader, True), (SparkSession, False)):
            stack.enter_context(replaced(cls, "table", before_table(cls.table, streaming)))
        stack.enter_context(replaced(SparkSession, "sql", before_sql(SparkSession.sql)))
        for cls, group in ((DataStreamReader, group_id), (DataFrameReader, "")):
            for name, wrapper in _reader_wrappers(cls, group, on_source).items():
                stack.enter_context(replaced(cls, name, wrapper))
        yield


def _reader_wrappers(reader: Any, group_id: str, on_source: SourceOptions) -> dict[str, Callable[..., Any]]:
    """Wrappers of a reader's methods that set the options groupId (unless `group_id` is empty) and missingTopics before
    `load`, unless they are set, and that call `on_source`.
    """
    option, options, load, choose_format = reader.option, reader.options, reader.load, reader.format

    def noted(self: Any, given: Mapping[str, Any]) -> None:
        known = self.__dict__.setdefault("_barnabas_options", {})
        known.update({key.lower(): str(value) for key, value in given.items()})

    def wrapped_format(self: Any, source: str) -> Any:
        self.__dict__["_barnabas_is_format"] = source.lower() == "barnabas"
        return choose_format(self, source)

    def wrapped_option(self: Any, key: str, value: Any) -> Any:
        noted(self, {key: value})
        return option(self, key, value)

    def wrapped_options(self: Any, **given: Any) -> Any:
        noted(self, given)
        return options(self, **given)

    def wrapped_load(self: Any, path: Any = None, format: Any = None, schema: Any = None, **given: Any) -> Any:
        if format is not None:
            self.format(format)
        if given:
            self.options(**given)
        if getattr(self, "_barnabas_is_format", False):
            known = getattr(self, "_barnabas_options", {})
            if group_id and not _GROUP_OPTIONS & known.keys():
                option(self, "groupId", group_id)
            if "missingtopics" not in known:
                option(self, "missingTopics", MissingTopics.WAIT.value)
            on_source(known)
        return load(self, path, None, schema)

    return {"format": wrapped_format, "option": wrapped_option, "options": wrapped_options, "load": wrapped_load}
