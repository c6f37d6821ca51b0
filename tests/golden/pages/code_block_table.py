"""Table: which test runs which code blocks of the documentation, and why some blocks are not run.

A block that is in neither table is checked by its kind (`test_golden_blocks.py`): command lines by their options,
properties by their names, JSON and YAML by their syntax. `py` is Python whose syntax is checked and that does not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_PYTHON: Final = ("python", "text")


@dataclass(frozen=True, slots=True)
class Run:
    """Blocks that a test runs. `pages` matches paths; no `sections` are all sections."""

    test: str
    pages: str
    kinds: tuple[str, ...] = _PYTHON
    sections: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """Blocks that are not run, found by their pages (`page` is a pattern) and the beginning of their first line."""

    page: str
    start: str
    reason: str


RUN: Final = (
    Run("tests/system/client/test_tutorial.py", "docs/tutorial/*.md"),
    Run("tests/system/client/test_tutorial.py", "docs/migration/*.md"),
    Run("tests/system/docs/test_recipes.py", "docs/recipes/*.md"),
    Run("tests/system/packaging/test_bare_installation.py", "README.md", ("",), ("Barnabas",)),
    Run("tests/system/docs/test_readme.py", "README.md", _PYTHON, ("From Python", "In a test")),
    Run("tests/system/spark/test_spark_pages.py", "README.md", sections=("A Spark pipeline",)),
    Run("tests/system/cluster/test_cluster_readme.py", "README.md", ("",), ("A cluster",)),
    Run("tests/system/testing/test_testing_your_code_page.py", "docs/TESTING_YOUR_CODE.md"),
    Run("tests/system/docs/test_page_programs.py", "docs/TESTING.md"),
    Run("tests/system/docs/test_page_programs.py", "docs/CLIENTS.md"),
    Run("tests/system/docs/test_page_programs.py", "docs/CLI.md", ("indented",), ("Contexts",)),
    Run("tests/system/docs/test_page_programs.py", "docs/METRICS.md", ("indented",)),
    Run("tests/system/docs/test_page_programs.py", "docs/tutorial/README.md", ("",)),
    Run("tests/system/registry/test_system_registry_page.py", "docs/REGISTRY.md"),
    Run("tests/system/spark/test_spark_pages.py", "docs/SPARK.md"),
    Run(
        "tests/system/spark/test_spark_pipelines.py",
        "docs/PIPELINES.md",
        ("python", "sql", "yaml"),
        ("The files", "Change events"),
    ),
    Run("tests/system/connectors/test_connect_page_postgres.py", "docs/CONNECT.md", sections=("PostgreSQL",)),
    Run("tests/system/connectors/test_connect_page_mariadb.py", "docs/CONNECT.md", sections=("MySQL and MariaDB",)),
    Run(
        "tests/system/connectors/test_polling.py",
        "docs/CONNECT.md",
        sections=("Polling tables", "SQLite and DuckDB"),
    ),
    Run("tests/system/connectors/test_connect_page_databases.py", "docs/CONNECT.md", sections=("Databases",)),
    Run("tests/system/connectors/test_lake_pages.py", "docs/CONNECT.md", sections=("Tables and files", "HTTP")),
    Run("tests/unit/spark/connectors/transforms/test_transforms_page.py", "docs/CONNECT.md", sections=("Transforms",)),
    Run("tests/unit/spark/connectors/connect/test_connect_page.py", "docs/CONNECT.md", ("properties", "sh")),
    Run("tests/system/security/test_security_page.py", "docs/SECURITY.md", ("sh", "properties"), (
        "A secure cluster", "Certificates of nodes", "The authority", "Passwords", "From PLAINTEXT to SASL_SSL",
        "Users", "Quotas",
    )),
    Run("tests/system/security/test_oauth_log_in.py", "docs/SECURITY.md", ("python", "properties"), ("OAUTHBEARER",)),
    Run(
        "tests/system/security/test_principals_of_a_user.py",
        "docs/SECURITY.md",
        _PYTHON,
        ("Principals of your own",),
    ),
    Run(
        "tests/unit/server/broker/authorization/test_standard_authorizer.py",
        "docs/SECURITY.md",
        _PYTHON,
        ("An authorizer of your own",),
    ),
    Run(
        "tests/unit/server/metadata/test_metadata_quota_callback.py",
        "docs/SECURITY.md",
        _PYTHON,
        ("Quotas of your own",),
    ),
)  # fmt: skip

_DRAWING: Final = "a drawing"
_OUTPUT: Final = "output"
_SPARK_CLUSTER: Final = "needs a Spark cluster with several machines or Kubernetes"
_FRAGMENT: Final = "a fragment that shows the shape of the code; the tutorial's programs run"

SHOWN: Final = (
    Shown("README.md", "1 record, 18 B", _OUTPUT + ", with rates that differ"),
    Shown("deploy/README.md", "useradd", "changes the machine; tests/system/deploy runs the unit"),
    Shown("deploy/README.md", "podman build", "needs containers; tests/unit/deploy reads the files"),
    Shown(
        "deploy/README.md",
        "barnabas cluster init --secure made",
        "needs Kubernetes; tests/system/deploy checks the files",
    ),
    Shown("docs/ARCHITECTURE.md", "socket ", _DRAWING),
    Shown("docs/ARCHITECTURE.md", "leader's broker", _DRAWING),
    Shown("docs/ARCHITECTURE.md", "driver, before the tasks", _DRAWING),
    Shown("docs/CONSOLE.md", 'value.carrier = "UA"', "searches; tests/unit/console/browse tests the language"),
    Shown("docs/CONSOLE.md", "curl -s http://127.0.0.1:8090", "tests/system/console tests these addresses"),
    Shown("docs/OPERATIONS.md", '{"ready": false', _OUTPUT + ", shortened"),
    Shown("docs/OPERATIONS.md", "2026-01-31T08:15:00.123+01:00 INFO", _OUTPUT),
    Shown("docs/OPERATIONS.md", "CLIENT ID          COST", _OUTPUT + ", shortened"),
    Shown("docs/OPERATIONS.md", "CLIENT ID    ADDRESS", _OUTPUT + ", shortened"),
    Shown("docs/PIPELINES.md", '{"event": "state"', _OUTPUT + ", several lines of JSON"),
    Shown("docs/REGISTRY.md", "{errorType:", _OUTPUT + ", in the registry's own notation"),
    Shown("docs/SECURITY.md", "export BARNABAS_SASL_OAUTHBEARER_ALLOWED_URLS", "a variable for a provider of tokens"),
    Shown("docs/SECURITY.md", "Principal = User:mallory", _OUTPUT),
    Shown("docs/SECURITY.md", "spark.sql.redaction", "a setting of Spark, which the commands set by themselves"),
    Shown("docs/SPARK.md", "MERGE INTO", "needs a table format that has MERGE; the block above it runs"),
    Shown("docs/SPARK.md", "export SPARK_HOME", _SPARK_CLUSTER),
    Shown("docs/SPARK.md", "python3.11 -m venv pipeline", _SPARK_CLUSTER),
    Shown("docs/SPARK.md", "export PYSPARK_DRIVER_PYTHON", _SPARK_CLUSTER),
    Shown("docs/SPARK.md", "spark-submit --master k8s", _SPARK_CLUSTER),
    Shown("docs/SPARK.md", "export PYSPARK_PYTHON", _SPARK_CLUSTER),
    Shown("docs/SPARK.md", "spark = SparkSession.builder.remote", _SPARK_CLUSTER),
    Shown("docs/SPARK.md", "the brokers do not offer two-phase commit", _OUTPUT),
    Shown("docs/TIERED.md", "<key.prefix>", "names of files"),
    Shown("docs/adr/*.md", "", "drawings and formats of decisions, as they were made"),
    Shown("examples/shop/README.md", "orders in PostgreSQL", _DRAWING),
    Shown("examples/three_hosts/README.md", "useradd", "changes the machine: users and systemd"),
    Shown("examples/three_hosts/README.md", "docker compose", "needs Docker, which the tests never do"),
    Shown("src/barnabas/client/README.md", "async with AsyncProducer", _FRAGMENT),
    Shown("src/barnabas/console/README.md", "GET  page", _DRAWING),
    Shown("src/barnabas/registry/README.md", "request -- api/app", _DRAWING),
    Shown("src/barnabas/server/coordination/README.md", "decide -> apply", _DRAWING),
    Shown("src/barnabas/server/coordination/transaction/README.md", "state.py", _DRAWING),
    Shown("src/barnabas/server/metadata/README.md", "request -> controller/", _DRAWING),
    Shown("src/barnabas/server/storage/README.md", "directory = LogDir.open", _FRAGMENT),
    Shown("src/barnabas/spark/README.md", "flights = (", _FRAGMENT),
    Shown("src/barnabas/spark/connectors/README.md", "capture: database", _DRAWING),
    Shown("src/barnabas/spark/connectors/connect/README.md", "request - rest/app", _DRAWING),
    Shown("src/barnabas/spark/mirror/README.md", "mm2.properties ->", _DRAWING),
)


def render_shown() -> str:
    """The blocks that no test runs, for docs/TESTING.md."""
    lines = ["| Page | Block | Why it is not run |", "|---|---|---|"]
    lines += [
        f"| {one.page} | {f'`{one.start.strip()} ...`' if one.start else 'all'} | {one.reason} |" for one in SHOWN
    ]
    return "\n".join(lines) + "\n"
