"""Codec: the tables of configs and options in the code -> the tables of docs/reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from barnabas.client.config import ADMIN_CONFIGS, CLUSTER_CONFIGS, CONSUMER_CONFIGS, PRODUCER_CONFIGS
from barnabas.core.config import REQUIRED, ConfigDef, ConfigKey, ConfigType, ConfigValue, UpdateMode, value_to_text
from barnabas.protocol.transport.http.settings import SETTINGS as HTTP_SETTINGS
from barnabas.registry.registry_file import SETTINGS as REGISTRY_FILE
from barnabas.registry.security import SETTINGS as USERS_SETTINGS
from barnabas.server.metadata.configs.not_applied import NOT_APPLIED, STORES
from barnabas.server.metadata.configs.tables import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
)
from barnabas.server.node.config import AUTHORIZER_CONFIGS
from barnabas.spark.connectors.connect.cluster.values import ConnectorKind
from barnabas.spark.connectors.connect.plans.queries import definitions_of
from barnabas.spark.connectors.connect.plans.table import COMMON, CONNECTORS, SINK_KEYS, SOURCE_KEYS, ConnectorRow
from barnabas.spark.options import OPTIONS

_HEAD: Final = ["| Config | Meaning | Default | Valid values |", "|---|---|---|---|"]
_SHARE_ONLY: Final = "share."
_TYPES: Final = {
    "boolean": "true, false",
    "positive": "integer above 0",
    "duration_ms": "time, such as 30s",
    "size": "size, such as 64m",
    "timestamp_ms": "milliseconds since 1970",
    "name_list": "list",
    "offsets": "earliest, latest, JSON",
    "timestamps": "JSON",
    "assignment": "JSON",
    "topics": "list",
    "topic_pattern": "regular expression",
    "schema_version": "latest, or a number",
}
"""What a user gives, by the name of the function that parses it."""


def render_broker() -> str:
    """The configs of brokers and controllers, without internal ones."""
    return _rows(_HEAD, (_row(key, f" *Changed {_broker_change(key)}.*") for key in BROKER_CONFIGS if not key.internal))


def render_authorizer() -> str:
    return _rows(
        ["| Config | Meaning |", "|---|---|"],
        (f"| `{name}` | {_cell(text)} |" for name, text in AUTHORIZER_CONFIGS.items()),
    )


def render_topic() -> str:
    return _rows(_HEAD, (_row(key, _synonyms(key)) for key in TOPIC_CONFIGS if not key.internal))


def render_group() -> str:
    return _rows(_HEAD, (_row(key, _synonyms(key)) for key in GROUP_CONFIGS if not key.internal))


def render_client_metrics() -> str:
    return _rows(_HEAD, (_row(key) for key in CLIENT_METRICS_CONFIGS if not key.internal))


def render_every_client() -> str:
    return _rows(_HEAD, map(_row, CLUSTER_CONFIGS))


def render_producer() -> str:
    return _of_one_client(PRODUCER_CONFIGS)


def render_consumer() -> str:
    return _of_one_client(CONSUMER_CONFIGS, lambda key: not key.name.startswith(_SHARE_ONLY))


def render_share_consumer() -> str:
    return _of_one_client(CONSUMER_CONFIGS, lambda key: key.name.startswith(_SHARE_ONLY))


def render_admin() -> str:
    return _of_one_client(ADMIN_CONFIGS)


def render_spark() -> str:
    head = ["| Option | Meaning | Type | Default | Where |", "|---|---|---|---|---|"]
    rows = (
        f"| `{row.name}`{' (ours)' if row.ours else ''} | {_cell(row.meaning)} | {_parser_name(row.parse)} "
        f"| {_option_default(row.default)} | {row.use.replace(',', ', ')} |"
        for row in OPTIONS
    )
    return _rows(head, rows)


def render_connectors() -> str:
    """A table of the keys that all connectors have, and one for each connector."""
    general = {option.name for option in (*COMMON, *SINK_KEYS, *SOURCE_KEYS)}
    sink = next(row for row in CONNECTORS if row.kind is ConnectorKind.SINK)
    source = next(row for row in CONNECTORS if row.kind is ConnectorKind.SOURCE)
    common, of_sinks, of_sources = ({option.name for option in keys} for keys in (COMMON, SINK_KEYS, SOURCE_KEYS))
    lines = ["## All connectors", "", _connector_table(sink, common.__contains__)]
    lines += ["## All sinks", "", _connector_table(sink, of_sinks.__contains__)]
    lines += ["## All sources", "", _connector_table(source, of_sources.__contains__)]
    for row in CONNECTORS:
        lines += [f"## {row.name}", ""]
        known = ", ".join(f"`{alias}`" for alias in row.aliases)
        lines += [f"A {row.kind.value.lower()}. It also takes the configurations of {known}." if known else
                  f"A {row.kind.value.lower()}.", ""]  # fmt: skip
        lines.append(_connector_table(row, lambda name: name not in general))
    return "\n".join(lines)


def _connector_table(row: ConnectorRow, wanted: Callable[[str], bool]) -> str:
    head = ["| Key | Meaning | Default | Type |", "|---|---|---|---|"]
    rows = []
    for one in definitions_of(row):
        if wanted(one.name):
            default = _required_or(one.required, one.default_value)
            rows.append(f"| `{one.name}` | {_cell(one.documentation)} | {default} | {one.type.lower()} |")
    return _rows(head, rows)


def _required_or(is_required: bool, default: str | None) -> str:
    return "*required*" if is_required else f"`{default}`" if default else ""


def _rows(head: list[str], rows: Iterable[str]) -> str:
    return "\n".join([*head, *rows]) + "\n"


def _of_one_client(table: ConfigDef, wanted: Callable[[ConfigKey], bool] = lambda _: True) -> str:
    """The configs that this client does not share with all others, or shares with another default."""
    own = (key for key in table if CLUSTER_CONFIGS.get(key.name) != key and wanted(key))
    return _rows(_HEAD, map(_row, own))


def _row(key: ConfigKey, more: str = "") -> str:
    return f"| `{key.name}` | {_cell(key.doc)}{more} | {_default(key)} | {_valid(key)} |"


def _broker_change(key: ConfigKey) -> str:
    if key.name in STORES:
        return "on an open listener"
    if key.name in NOT_APPLIED or key.update_mode is UpdateMode.READ_ONLY:
        return "at a restart"
    return "for one broker, or all" if key.update_mode is UpdateMode.PER_BROKER else "for all brokers"


def _synonyms(key: ConfigKey) -> str:
    names = ", else ".join(f"`{name}`" for name in key.synonyms)
    return f" Not set: the broker's {names}." if names else ""


def _default(key: ConfigKey) -> str:
    if key.default is REQUIRED:
        return "*required*"
    value: ConfigValue = key.default  # type: ignore[assignment]  # REQUIRED is excluded above
    text = value_to_text(value)
    return f"`{text}`" if text else "*empty*" if text == "" else "*none*"


def _valid(key: ConfigKey) -> str:
    kind = "true, false" if key.type is ConfigType.BOOLEAN else key.type.name.lower()
    if key.validator is None or str(key.validator) == kind:
        return kind
    return f"{kind}: {_cell(str(key.validator).strip('[]') if _is_choice(key) else str(key.validator))}"


def _is_choice(key: ConfigKey) -> bool:
    return bool(getattr(key.validator, "choices", ()))


def _cell(text: str) -> str:
    """Text in a cell of a table: no line breaks, and nothing that Markdown reads as markup."""
    flat = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return flat.replace("*", "\\*").replace("_", "\\_") if "`" not in flat else flat


def _option_default(value: object) -> str:
    if value in (None, "", ()):
        return ""
    shown = getattr(value, "value", value)
    return f"`{str(shown).lower() if isinstance(shown, bool) else shown}`"


def _parser_name(parse: Callable[..., object]) -> str:
    choices = getattr(parse, "__closure__", None)
    if choices:
        values = [str(one.value) for cell in choices for one in _members(cell.cell_contents)]
        if values:
            return ", ".join(values)
    return _TYPES.get(parse.__name__, parse.__name__.replace("_", " "))


def _members(value: object) -> list[object]:
    return list(value) if isinstance(value, type) and hasattr(value, "__members__") else []


def render_registry_file() -> str:
    """The names in the file of a schema registry."""
    settings = {**REGISTRY_FILE, **HTTP_SETTINGS, **USERS_SETTINGS}
    return _rows(
        ["| Setting | Meaning |", "|---|---|"], (f"| `{name}` | {_cell(text)} |" for name, text in settings.items())
    )
