"""Table: which extra of the package `barnabas` installs a module that is missing."""

from __future__ import annotations

from typing import Final

EXTRAS: Final = {
    "cryptography": "tls",
    "deltalake": "delta",
    "duckdb": "duckdb",
    "fastavro": "registry",
    "google": "registry",
    "gssapi": "gssapi",
    "h11": "registry",
    "jinja2": "console",
    "jsonschema": "registry",
    "kazoo": "zookeeper",
    "numba": "columnar",
    "numpy": "columnar",
    "obstore": "tiered",
    "psycopg": "postgres",
    "pyarrow": "columnar",
    "pyiceberg": "iceberg",
    "pymysql": "mysql",
    "pyspark": "spark",
    "pytest": "testing",
    "starlette": "console",
    "uvicorn": "registry",
    "yaml": "spark",
}
"""The extra of pyproject.toml, by the name under which Python imports the module."""


def missing_extra(error: ImportError) -> str | None:
    """What to do about a module that is not installed; None if no extra has it."""
    extra = EXTRAS.get((error.name or "").partition(".")[0])
    return None if extra is None else f"{error.name} is not installed: pip install 'barnabas[{extra}]'"
