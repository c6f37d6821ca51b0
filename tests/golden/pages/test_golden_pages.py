"""Tables in docs/ that say what a table in the code says: they are held to it (`--rewrite` writes them)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from barnabas.cli.security.acl_words import operation_word
from barnabas.core.telemetry.table import SECTIONS
from barnabas.protocol.security.acls import AclResourceType
from barnabas.protocol.wire.apis import APIS
from barnabas.server.broker.apis import API_ROWS, BROKER_APIS, CONTROLLER_APIS, ApiTable, Served
from barnabas.server.broker.authorization.access import Need
from barnabas.spark.connectors.capture.options import CAPTURE_OPTIONS
from barnabas.spark.connectors.option_rows import ConnectorOption
from barnabas.spark.connectors.polling.options import POLLING_OPTIONS
from barnabas.spark.connectors.postgres.options import POSTGRES_OPTIONS
from barnabas.spark.options import OPTIONS
from tests.golden.pages import bounds, cli_reference, code_block_table, config_reference, position_pages, type_pages

DOCS = Path(__file__).parents[3] / "docs"


def render_apis() -> str:
    lines = ["| Key | API | Brokers serve | Controllers serve | The codec knows |", "|---:|---|---|---|---|"]
    for key, api in sorted(APIS.items()):
        served = f"{_served(BROKER_APIS, int(key))} | {_served(CONTROLLER_APIS, int(key))}"
        lines.append(f"| {int(key)} | {api.name} | {served} | {api.min_version} to {api.max_version} |")
    return "\n".join(lines) + "\n"


def _served(table: ApiTable, key: int) -> str:
    route = table.by_key.get(key)
    return "no" if route is None else f"{route.min_version} to {route.max_version}"


def render_spark_options() -> str:
    lines = ["| Option | Where | Meaning |", "|---|---|---|"]
    for row in OPTIONS:
        where = row.use.replace(",", ", ")
        lines.append(f"| `{row.name}`{' (ours)' if row.ours else ''} | {where} | {row.meaning} |")
    return "\n".join(lines) + "\n"


def render_options(rows: Sequence[ConnectorOption]) -> str:
    lines = ["| Option | Default | Meaning |", "|---|---|---|"]
    lines += [f"| `{row.name}` | {_default(row.default)} | {row.meaning} |" for row in rows]
    return "\n".join(lines) + "\n"


def _default(value: object) -> str:
    if value in (None, "", ()):
        return ""
    if isinstance(value, frozenset):
        return f"`{','.join(sorted(value))}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _right(need: Need) -> str:
    return f"{operation_word(need.operation)} on {_RESOURCES[need.resource_type]}"


def _needs(served: Served | None) -> str:
    if served is None:
        return "not served"
    access = served.access
    if access.is_forwarded:
        return "forwarded"
    alternatives: dict[int, list[str]] = {}
    for number, need in enumerate(access.needs, 1):
        alternatives.setdefault(need.group or -number, []).append(_right(need))
    rights = ", ".join(" or ".join(group) for group in alternatives.values()) or "nothing"
    return f"{rights} ({access.reason})" if access.reason else rights


def render_needs() -> str:
    """What the client of each API must be allowed to do."""
    lines = ["| API | On brokers | On controllers |", "|---|---|---|"]
    for key, row in sorted(API_ROWS.items()):
        lines.append(f"| {APIS[key].name} | {_needs(row.broker)} | {_needs(row.controller)} |")
    return "\n".join(lines) + "\n"


def render_metrics() -> str:
    """Every metric by section, with the two families of names."""
    lines: list[str] = []
    for title, rows in SECTIONS.items():
        lines += [f"## {title}", "", "| Name | Type | Labels | Meaning | Kafka's MBean |", "|---|---|---|---|---|"]
        for row in rows:
            names = f"`{row.name}`"
            if row.confluent and row.confluent != row.name:
                names += f"<br>`{row.confluent}`"
            labels = ", ".join(f"`{label}`" for label in row.labels)
            mbean = f"`{row.mbean}`" if row.mbean else ""
            lines.append(f"| {names} | {row.kind.value} | {labels} | {row.help} | {mbean} |")
        lines.append("")
    return "\n".join(lines)


_RESOURCES = {
    AclResourceType.TOPIC: "the topic",
    AclResourceType.GROUP: "the group",
    AclResourceType.CLUSTER: "the cluster",
    AclResourceType.TRANSACTIONAL_ID: "the transactional id",
    AclResourceType.DELEGATION_TOKEN: "the token",
    AclResourceType.USER: "the user",
}

PAGES: list[tuple[str, str, Callable[[], str]]] = [
    ("COMPATIBILITY.md", "apis", render_apis),
    ("SECURITY.md", "needs", render_needs),
    ("SECURITY.md", "bounds", bounds.render_bounds),
    ("METRICS.md", "metrics", render_metrics),
    ("SPARK.md", "options", render_spark_options),
    ("CONNECT.md", "capture-options", partial(render_options, CAPTURE_OPTIONS)),
    ("CONNECT.md", "postgres-options", partial(render_options, POSTGRES_OPTIONS)),
    ("CONNECT.md", "polling-options", partial(render_options, POLLING_OPTIONS)),
    ("reference/broker.md", "broker", config_reference.render_broker),
    ("reference/broker.md", "authorizer", config_reference.render_authorizer),
    ("reference/topic.md", "topic", config_reference.render_topic),
    ("reference/topic.md", "group", config_reference.render_group),
    ("reference/topic.md", "client-metrics", config_reference.render_client_metrics),
    ("reference/clients.md", "every-client", config_reference.render_every_client),
    ("reference/clients.md", "producer", config_reference.render_producer),
    ("reference/clients.md", "consumer", config_reference.render_consumer),
    ("reference/clients.md", "share-consumer", config_reference.render_share_consumer),
    ("reference/clients.md", "admin", config_reference.render_admin),
    ("reference/spark.md", "spark", config_reference.render_spark),
    ("reference/connectors.md", "connectors", config_reference.render_connectors),
    ("reference/types.md", "postgres-rows", lambda: type_pages.render_rows(type_pages.postgres_columns())),
    ("reference/types.md", "postgres-events", lambda: type_pages.render_events(type_pages.postgres_columns())),
    ("reference/types.md", "postgres-values", partial(type_pages.render_values, "postgres")),
    ("reference/types.md", "mysql-rows", lambda: type_pages.render_rows(type_pages.mysql_columns())),
    ("reference/types.md", "mysql-events", lambda: type_pages.render_events(type_pages.mysql_columns())),
    ("reference/types.md", "mariadb-values", partial(type_pages.render_values, "mariadb")),
    ("reference/types.md", "differences", type_pages.render_differences),
    ("reference/positions.md", "positions", position_pages.render_positions),
    ("reference/services.md", "registry-command", partial(cli_reference.render_options, "registry")),
    ("reference/services.md", "registry-file", config_reference.render_registry_file),
    ("reference/services.md", "console-command", partial(cli_reference.render_options, "console")),
    ("TESTING.md", "shown", code_block_table.render_shown),
    ("reference/cli.md", "commands", cli_reference.render_commands),
]


@pytest.mark.parametrize(("page", "name", "render"), PAGES, ids=[f"{page}-{name}" for page, name, _ in PAGES])
def test_the_page_says_what_the_code_says(
    page: str, name: str, render: Callable[[], str], request: pytest.FixtureRequest
) -> None:
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    text = (DOCS / page).read_text(encoding="utf-8")
    before, rest = text.split(begin)
    _, after = rest.split(end)
    expected = before + begin + render() + end + after
    if request.config.getoption("--rewrite"):
        (DOCS / page).write_text(expected, encoding="utf-8")
    else:
        assert text == expected


def test_every_limit_of_what_strangers_make_a_node_keep_is_in_the_table_or_has_a_reason() -> None:
    limits, listed = bounds.limits(), bounds.listed()
    assert limits - listed - bounds.OTHERS.keys() == set(), "add a row to tests/golden/pages/bounds.py"
    assert bounds.OTHERS.keys() - limits == set()
    assert bounds.OTHERS.keys() & listed == set()
