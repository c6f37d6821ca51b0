"""Machine: the configuration of a connector -> the options of its streaming query.

Each key belongs to one of three: to the connector (`table.py`), to the topic's side of the query (an option of
`format("barnabas")`, such as startingOffsets or valueFormat), or to the clients of the topic (`consumer.override.*` of
a sink, `producer.override.*` of a source). A key that belongs to none is an error, with the nearest name.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from msgspec import Struct

from barnabas.spark.connectors.connect.client_settings import OF_CONSUMERS, OF_PRODUCERS, RESET, setting_problem
from barnabas.spark.connectors.connect.cluster.ports import ConfigDefinition, ConfigFinding
from barnabas.spark.connectors.connect.cluster.values import ConnectorConfig, ConnectorKind
from barnabas.spark.connectors.connect.plans.checks import (
    CONVERTERS,
    conversion_errors,
    key_of,
    mentions,
    without_references,
)
from barnabas.spark.connectors.connect.plans.jdbc import SPARK_JDBC, spark_jdbc_options
from barnabas.spark.connectors.connect.plans.table import (
    AS_BYTES,
    COMMON,
    SINK_KEYS,
    SOURCE_KEYS,
    TRIGGER_MS,
    ConnectorRow,
    find_connector,
)
from barnabas.spark.connectors.connect.secrets import REFERENCE, names_secret
from barnabas.spark.connectors.option_rows import ConnectorOption, milliseconds
from barnabas.spark.errors import OptionError
from barnabas.spark.options import OPTIONS, OptionRow
from barnabas.spark.sink.topic_creation import PREFIX as TOPIC_CREATION
from barnabas.spark.sink.topic_creation import parse_topic_creation

_IGNORED_PREFIXES = (OF_CONSUMERS, OF_PRODUCERS, "admin.override.")
_OF_COLUMNS = frozenset({"valueformat", "keyformat", "spark.select"})
_SPARK_OPTION = "spark.option."
_BY_CONNECT = ("kafka.bootstrap.servers", "subscribe", "subscribePattern", "assign", "topic")
"""Options of `format("barnabas")` that the worker sets by itself."""


class PlannedQuery(Struct, frozen=True):
    """One streaming query: the formats that it reads and writes, with their options."""

    kind: ConnectorKind
    read_format: str
    read_options: Mapping[str, str]
    write_format: str
    write_options: Mapping[str, str]
    trigger_ms: int
    topics: tuple[str, ...] = ()
    select: str | None = None
    """What follows SELECT in a query over the rows that are read; None for all columns."""
    deletes: bool = False
    """Whether a record without a value deletes its key."""
    is_staged: bool = False
    """Whether the source, or the sink, needs the option stagingLocation."""


def plan_query(config: ConnectorConfig, client: Mapping[str, str]) -> PlannedQuery:
    """The query of a configuration. `client` has the settings of the worker's Kafka clients. Raises OptionError, and
    LookupError for an unknown connector.
    """
    row = find_connector(config["connector.class"])
    for finding in findings_of(config):
        if finding.errors:
            raise OptionError("; ".join(finding.errors))
    own, topic_side = _divided(row, config)
    own = _translated(row, own)
    write_format = _format(row, own if row.format_of else config)
    if _has_dead_letters(row, config):
        own |= _kafka({**client, **_below(OF_PRODUCERS, config)})
    clients = _kafka({**client, **_below(OF_CONSUMERS if row.kind is ConnectorKind.SINK else OF_PRODUCERS, config)})
    select = config.get("spark.select", "").strip() or None
    trigger = config.get("trigger.interval.ms")
    trigger_ms = TRIGGER_MS if trigger is None else milliseconds("trigger.interval.ms", trigger)
    if row.kind is ConnectorKind.SINK:
        topics = tuple(part.strip() for part in config.get("topics", "").split(",") if part.strip())
        chosen = {"subscribe": ",".join(topics)} if topics else {"subscribePattern": config["topics.regex"]}
        start = clients.pop(f"kafka.{RESET}", "earliest")
        # Headers name the values that a source did not send (`sinking/presence.py`).
        headers = {"includeHeaders": "true"} if row.converts and not has_columns(config) else {}
        read = {"startingOffsets": start, **headers, **topic_side, **clients, **chosen}
        deletes = config.get("delete.enabled", "false").strip().lower() == "true"
        staged = row.is_staged_sink is not None and row.is_staged_sink(own)
        if write_format == SPARK_JDBC:
            _check_columns(config)
            own = spark_jdbc_options(own)
        return PlannedQuery(
            row.kind, "barnabas", read, write_format, own, trigger_ms, topics, select, deletes, is_staged=staged
        )
    topic = config.get("topic")
    write = {**topic_side, **clients, **({"topic": topic} if topic else {})}
    named = (topic,) if topic else ()
    return PlannedQuery(
        row.kind, write_format, own, "barnabas", write, trigger_ms, named, select, is_staged=row.is_staged
    )


def findings_of(config: ConnectorConfig) -> list[ConfigFinding]:
    """What is to be said about each key of a configuration. Raises LookupError for an unknown connector."""
    row = find_connector(config["connector.class"])
    definitions = {definition.name: definition for definition in definitions_of(row)}
    options = {option.name.lower(): option for option in _options(row)}
    errors = _errors_of_keys(row, config, options)
    known, unknown = without_references(config, options)
    found: dict[str, list[str]] = {}
    if row.kind is ConnectorKind.SOURCE:
        _check_source(known, found)
    _check_required(row, config, found)
    _check_clients(row, known, found)
    if not row.converts:
        _check_converters(known, found)
    elif has_columns(config) and row.only_converters:
        found.setdefault("connector.class", []).append(
            f"{row.name} reads records with converters: leave valueFormat, keyFormat and spark.select out, or use"
            " JdbcSink"
        )
    elif has_columns(config):
        for name in config:
            if name.startswith(CONVERTERS):
                found.setdefault(name, []).append(f"{name} has no effect with valueFormat, keyFormat or spark.select")
    if not errors and all(mentions(each, unknown) for messages in found.values() for each in messages):
        _check_format(row, known, definitions, found)
    for name, messages in found.items():
        errors.setdefault(name, []).extend(each for each in messages if not mentions(each, unknown))
    names = [*definitions, *(name for name in config if name not in definitions)]
    return [
        ConfigFinding(name, definitions.get(name), config.get(name), tuple(errors.get(name, ())))
        for name in dict.fromkeys([*names, *(name for name, messages in errors.items() if messages)])
    ]


def _errors_of_keys(
    row: ConnectorRow, config: ConnectorConfig, options: Mapping[str, ConnectorOption]
) -> dict[str, list[str]]:
    """What is wrong with each key by itself. A value with a reference is known only to the worker that starts the
    connector.
    """
    errors: dict[str, list[str]] = {}
    for name, text in config.items():
        option = options.get(name.lower())
        if option is None:
            if not _belongs(row, name):
                errors.setdefault(name, []).append(_unknown(row, name))
        elif REFERENCE.search(text) is None:
            try:
                option.parse(option.name, text)
            except OptionError as error:
                errors.setdefault(name, []).append(str(error))
    return errors


def _check_format(
    row: ConnectorRow, config: ConnectorConfig, known: Mapping[str, ConfigDefinition], errors: dict[str, list[str]]
) -> None:
    """Check the options of the connector's format, and the converters and transforms of a sink. Those of a source
    belong to its format.
    """
    try:
        own = _translated(row, _divided(row, config)[0])
        # the worker gives the brokers of the dead letters
        servers = {"kafka.bootstrap.servers": "localhost:9092"} if _has_dead_letters(row, config) else {}
        row.check({**servers, **own})
    except OptionError as error:
        errors.setdefault(key_of(str(error), config, known) or "connector.class", []).append(str(error))
        return
    if row.kind is ConnectorKind.SINK and row.converts:
        for name, message in conversion_errors(own, converts=not has_columns(config)):
            errors.setdefault(key_of(message, config, known) or name, []).append(message)


def _has_dead_letters(row: ConnectorRow, config: ConnectorConfig) -> bool:
    return row.kind is ConnectorKind.SINK and bool(config.get("errors.deadletterqueue.topic.name", "").strip())


def has_columns(config: ConnectorConfig) -> bool:
    """Whether a connector has typed columns, and not records with converters."""
    return any(name.lower() in _OF_COLUMNS for name in config)


def with_defaults(config: ConnectorConfig, defaults: Mapping[str, str]) -> dict[str, str]:
    """The configuration with the worker's converters, if it has neither converters of its own nor typed columns.

    The settings of a converter, such as `value.converter.schemas.enable`, belong to the class that is given with them.
    """
    merged = dict(config)
    if has_columns(config):
        return merged
    for converter in CONVERTERS:
        if converter not in config:
            merged |= {name: text for name, text in defaults.items() if name.startswith(converter)}
    return merged


def definitions_of(row: ConnectorRow) -> list[ConfigDefinition]:
    """The keys of a connector, with Connect's fields."""
    required = _required(row)
    return [
        ConfigDefinition(
            option.name,
            _type_of(option),
            option.name in required,
            _default_text(option),
            "HIGH" if option.name in required else "MEDIUM",
            option.meaning,
            "Common" if option in COMMON else row.name,
            number,
        )
        for number, option in enumerate(_options(row))
    ]


def _options(row: ConnectorRow) -> list[ConnectorOption]:
    keys = SINK_KEYS if row.kind is ConnectorKind.SINK else SOURCE_KEYS
    found = {option.name.lower(): option for option in (*COMMON, *keys, *row.accepted, *row.options())}
    return list(found.values())


def _required(row: ConnectorRow) -> frozenset[str]:
    return frozenset({"name", "connector.class", *(("spark.format",) if row.format is None else ())})


def _check_source(config: ConnectorConfig, errors: dict[str, list[str]]) -> None:
    try:
        parse_topic_creation(config)
    except OptionError as error:
        errors.setdefault(key_of(str(error), config, ()) or "connector.class", []).append(str(error))
    given = {name.lower(): text.strip().lower() for name, text in config.items()}
    if given.get("exactly.once.support") == "required" and given.get("delivery") == "at-least-once":
        errors.setdefault("exactly.once.support", []).append(
            "exactly.once.support=required contradicts delivery=at-least-once: leave delivery out"
        )


def _check_clients(row: ConnectorRow, config: ConnectorConfig, errors: dict[str, list[str]]) -> None:
    """Check the settings of the clients that the connector's query has."""
    prefixes = {OF_CONSUMERS if row.kind is ConnectorKind.SINK else OF_PRODUCERS}
    given = {name.lower(): text.strip().lower() for name, text in config.items()}
    is_exactly_once = row.kind is ConnectorKind.SOURCE and given.get("delivery") != "at-least-once"
    if _has_dead_letters(row, config):
        prefixes.add(OF_PRODUCERS)
    for prefix in sorted(prefixes):
        for name, text in _below(prefix, config).items():
            problem = setting_problem(prefix, name, text, exactly_once=is_exactly_once and prefix == OF_PRODUCERS)
            if problem is not None:
                errors.setdefault(prefix + name, []).append(problem)


def _check_required(row: ConnectorRow, config: ConnectorConfig, errors: dict[str, list[str]]) -> None:
    for name in sorted(_required(row) - {"name"}):
        if not config.get(name, "").strip():
            errors.setdefault(name, []).append(f"{name} is missing; it must be given")
    if row.kind is ConnectorKind.SINK:
        given = [name for name in ("topics", "topics.regex") if config.get(name, "").strip()]
        if len(given) != 1:
            errors.setdefault("topics", []).append("give either topics or topics.regex")


def _check_converters(config: ConnectorConfig, errors: dict[str, list[str]]) -> None:
    for name in CONVERTERS:
        class_name = config.get(name, "").rpartition(".")[2]
        if class_name and class_name not in AS_BYTES and name != "header.converter":
            errors.setdefault(name, []).append(
                f"{name} {class_name} is not supported by this connector: use {' or '.join(AS_BYTES)}, which leave the"
                f" bytes as they are, and {name.partition('.')[0]}Format (avro, json, json-schema, protobuf) for typed"
                " columns"
            )


def _belongs(row: ConnectorRow, name: str) -> bool:
    """Whether a key that the connector has no row for belongs to it, to the topic's side, to clients or converters."""
    lowered = name.lower()
    if lowered.startswith(
        (*row.prefixes, *row.accepted_prefixes, *_IGNORED_PREFIXES, *(f"{one}." for one in CONVERTERS))
    ):
        return True
    if row.kind is ConnectorKind.SOURCE and lowered.startswith(TOPIC_CREATION):
        return True
    option = _topic_options(row).get(lowered)
    return option is not None and option.name not in _BY_CONNECT


def _topic_options(row: ConnectorRow) -> dict[str, OptionRow]:
    use = {"read", "stream"} if row.kind is ConnectorKind.SINK else {"write"}
    return {option.name.lower(): option for option in OPTIONS if use & set(option.use.split(","))}


def _unknown(row: ConnectorRow, name: str) -> str:
    for pattern, reason in row.refused().items():
        if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
            return f"{name} is not supported: {reason}"
    known = {option.name for option in _options(row)} | {
        option.name for option in _topic_options(row).values() if option.name not in _BY_CONNECT
    }
    near = difflib.get_close_matches(name, sorted(known), n=1)
    hint = f"did you mean {near[0]}?" if near else f"GET /connector-plugins/{row.name}/config has a list of all keys"
    return f"{row.name} has no key {name}: {hint}"


def _divided(row: ConnectorRow, config: ConnectorConfig) -> tuple[dict[str, str], dict[str, str]]:
    """The options of the connector's format, and those of the topic's side."""
    rows = {option.name.lower() for option in row.options()}
    if not row.converts:
        rows -= {option.name.lower() for option in COMMON}
    topic_rows = _topic_options(row)
    accepted = {option.name.lower() for option in row.accepted}
    own: dict[str, str] = {}
    topic_side: dict[str, str] = {}
    for name, text in config.items():
        lowered = name.lower()
        if lowered in accepted:
            continue
        if row.format is None:
            if lowered.startswith(_SPARK_OPTION):
                own[name[len(_SPARK_OPTION) :]] = text
                continue
        elif lowered in rows or (row.prefixes and lowered.startswith(row.prefixes)):
            own[_kept_name(name)] = text
            if not (row.kind is ConnectorKind.SINK and lowered.startswith("errors.") and has_columns(config)):
                continue  # typed values are decoded by the reader of the topic, which then handles the errors, too
        is_topic = lowered in topic_rows and topic_rows[lowered].name not in _BY_CONNECT
        if is_topic or (row.kind is ConnectorKind.SOURCE and lowered.startswith(TOPIC_CREATION)):
            topic_side[name] = text
    return own, topic_side


def _kept_name(name: str) -> str:
    """The name of an option in a form whose meaning stays if Spark makes it lower case: the salt of a hash."""
    if not name.lower().startswith("column.mask.hash."):
        return name
    from barnabas.spark.connectors.events.masking import with_hexadecimal_salt

    return with_hexadecimal_salt(name)


def _below(prefix: str, config: ConnectorConfig) -> dict[str, str]:
    """The keys that begin with a prefix, without it."""
    return {name[len(prefix) :]: text for name, text in config.items() if name.startswith(prefix)}


def _kafka(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of Kafka clients as options of Spark's formats."""
    return {f"kafka.{name}": text for name, text in settings.items()}


def _translated(row: ConnectorRow, own: dict[str, str]) -> dict[str, str]:
    return own if row.translate is None else row.translate(own)


def _check_columns(config: ConnectorConfig) -> None:
    if not has_columns(config):
        raise OptionError(
            "connection.url is that of a database which Spark's own JDBC writer writes, and it writes typed columns:"
            " give valueFormat (avro, json, json-schema, protobuf) or spark.select"
        )


def _format(row: ConnectorRow, config: Mapping[str, str]) -> str:
    """The format of Spark of a connector. Raises OptionError."""
    if row.format_of is not None:
        return row.format_of(config)
    return row.format or config["spark.format"].strip()


def _type_of(option: ConnectorOption) -> str:
    """The name of Connect's `ConfigDef.Type` that fits the default."""
    match option.default:
        case bool():
            return "BOOLEAN"
        case int():
            return "LONG"
        case tuple() | list() | frozenset():
            return "LIST"
        case _:
            return "PASSWORD" if names_secret(option.name) else "STRING"


def _default_text(option: ConnectorOption) -> str | None:
    value = option.default
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, frozenset):
        return ",".join(sorted(map(str, value)))
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value))
    return str(getattr(value, "value", value))
