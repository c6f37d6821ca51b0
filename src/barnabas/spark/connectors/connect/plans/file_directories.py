"""Machine: which files of its host a connector that came over the REST API may read and write.

Every file, directory and database in a file that a configuration names must be below the worker's `file.directories`,
whatever the connector. Symbolic links are followed first. Locations in object stores and databases behind an address
are not files of the host.

| Key, whatever is before it | Names |
|---|---|
| file, path, checkpointLocation, ... (_PLACES) | a path or a URI |
| catalog.warehouse | the same, unless a server has the catalog: then it may be a name |
| connection.url, url, uri | a database, which is a file if its scheme is one of _EMBEDDED |

SQL reads files, too: `spark.select` cannot (the session has `spark.sql.runSQLOnFiles=false`) unless it calls Java, and
a query of DuckDB can read every file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

from barnabas.spark.connectors.connect.secrets import REFERENCE

SETTING: Final = "file.directories"
_PLACES: Final = frozenset(
    {"file", "path", "paths", "checkpointlocation", "staginglocation", "sourcearchivedir", "badrecordspath"}
)
_ADDRESSES: Final = frozenset({"url", "uri"})
_WAREHOUSE: Final = "warehouse"
_NOT_PLACES: Final = ("transforms.", "predicates.")
_STORES: Final = frozenset(
    {"s3", "s3a", "s3n", "gs", "gcs", "az", "azure", "adl", "abfs", "abfss", "wasb", "wasbs", "hdfs", "webhdfs",
     "swebhdfs", "oss", "cos", "r2", "dbfs", "http", "https"}
)  # fmt: skip
"""The schemes of locations that are not on this host."""
_EMBEDDED: Final = frozenset({"sqlite", "duckdb", "derby", "h2", "hsqldb"})
_SERVED: Final = ("tcp:", "ssl:", "hsql:", "hsqls:", "http:", "https:")
"""How addresses of H2 and HSQLDB begin, after the scheme, that are those of servers."""
_JAVA: Final = re.compile(r"\b(?:try_)?(?:reflect|java_method)\b", re.IGNORECASE)
_CATALOGS: Final = frozenset({"rest", "hive", "glue", "dynamodb", "bigquery"})


def refused_file(texts: Mapping[str, str], directories: Sequence[str]) -> tuple[str, str] | None:
    """The key with a file that is not below one of the directories, and why; None if there is none. A value with a
    reference to a secret is not known yet."""
    given = {name.lower(): text for name, text in texts.items()}
    for name, text in texts.items():
        if REFERENCE.search(text) is not None:
            continue
        place = _local_place(name.lower(), text.strip(), given)
        if place is not None and not _is_below(place, directories):
            allowed = f"they are {', '.join(directories)}" if directories else "there are none"
            return name, (
                f"{name}={text} is not below the directories in which connectors may use files: {allowed}; the worker's"
                f" setting {SETTING} has them"
            )
        reason = _refused_sql(name.lower(), text, given)
        if reason is not None:
            return name, reason
    return None


def _is_below(place: str, directories: Sequence[str]) -> bool:
    found = os.path.realpath(place)
    return any(os.path.commonpath([found, root]) == root for root in map(os.path.realpath, directories))


def _local_place(name: str, text: str, given: Mapping[str, str]) -> str | None:
    """The path of the file or directory that a key names; None if it names none of this host."""
    last = name.rpartition(".")[2]
    if name.startswith(_NOT_PLACES):
        return None
    if last in _PLACES or (last == _WAREHOUSE and _is_place(text, name, given)):
        scheme, colon, rest = text.partition(":")
        if colon and rest.startswith("//") and scheme.lower() in _STORES:
            return None
        return _path_of(rest) if colon and scheme.lower() == "file" else text
    return _database_file(last, text) if last in _ADDRESSES else None


def _is_place(warehouse: str, name: str, given: Mapping[str, str]) -> bool:
    """Whether the warehouse of a catalog is a location, and not the name that a server gives it."""
    start = name.removesuffix(_WAREHOUSE)
    kind = given.get(f"{start}type", "").strip().lower()
    is_served = kind in _CATALOGS or given.get(f"{start}uri", "").strip().lower().startswith(("http", "thrift:"))
    return not is_served or warehouse.startswith(("/", ".", "file:"))


def _database_file(last: str, text: str) -> str | None:
    bare = text[len("jdbc:") :] if text.lower().startswith("jdbc:") else text
    scheme, colon, rest = bare.partition(":")
    kind = scheme.lower().partition("+")[0]
    if colon and kind == "file":
        return _path_of(rest)
    if not colon or kind not in _EMBEDDED or rest.lower().startswith(_SERVED):
        return None
    if kind == "derby" and rest.startswith("//"):
        return None
    place = re.split(r"[?;]", rest, maxsplit=1)[0]
    if last == "uri" and place.startswith("///"):  # SQLAlchemy: the path is relative, or begins with a fourth slash
        return place[3:] or "."
    return unquote((urlsplit(f"file:{place}").path if place.startswith("//") else place).removeprefix("file:")) or "."


def _path_of(rest: str) -> str:
    return "/" + unquote(rest).lstrip("/")


def _refused_sql(name: str, text: str, given: Mapping[str, str]) -> str | None:
    last = name.rpartition(".")[2]
    if last == "select" and _JAVA.search(text) is not None:
        return f"{name} calls methods of Java: a connector that comes over the REST API may not, since they can do all"
    if last == "query" and any(
        ":duckdb:" in f":{each.strip().lower()}" for key, each in given.items() if key.endswith("url")
    ):
        return (
            f"{name} of DuckDB can read every file of the worker, so that a connector that comes over the REST API may"
            " not have one: read tables or views"
        )
    return None
