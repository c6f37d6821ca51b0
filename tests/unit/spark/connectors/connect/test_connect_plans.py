"""Configurations of connectors: what is wrong with them, and the queries that are made of them."""

from __future__ import annotations

import pytest

from barnabas.spark.connectors.connect.cluster.values import ConnectorKind
from barnabas.spark.connectors.connect.plans.planner import WorkerPlanner
from barnabas.spark.connectors.connect.plans.queries import PlannedQuery, definitions_of, findings_of, plan_query
from barnabas.spark.connectors.connect.plans.table import CONNECTORS, ConnectorRow, find_connector
from barnabas.spark.errors import OptionError

CLIENT = {"bootstrap.servers": "b:1", "sasl.mechanism": "PLAIN"}
FILE_SOURCE = {
    "name": "local-file-source",
    "connector.class": "FileStreamSource",
    "tasks.max": "1",
    "file": "/tmp/test.txt",
    "topic": "connect-test",
}
"""As in Kafka's quick start of Connect."""
DELTA = {
    "name": "lake",
    "connector.class": "DeltaSink",
    "topics": "orders, returns",
    "path": "/lake/orders",
    "insert.mode": "upsert",
    "pk.fields": "id",
    "delete.enabled": "true",
    "keyFormat": "json",
    "keySchema": "id BIGINT",
    "valueFormat": "avro",
    "schema.registry.url": "http://r:8081",
    "consumer.override.auto.offset.reset": "latest",
    "consumer.override.client.id": "lake",
    "trigger.interval.ms": "2000",
}


def errors(**config: str) -> dict[str, str]:
    """The keys that have errors, with the first one of each."""
    given = {name.replace("__", "."): text for name, text in config.items()}
    return {finding.name: finding.errors[0] for finding in findings_of(given) if finding.errors}


def test_the_file_source_of_connects_quick_start() -> None:
    assert plan_query(FILE_SOURCE, CLIENT) == PlannedQuery(
        ConnectorKind.SOURCE,
        "barnabas.files",
        {"file": "/tmp/test.txt", "topic": "connect-test"},
        "barnabas",
        {"kafka.bootstrap.servers": "b:1", "kafka.sasl.mechanism": "PLAIN", "topic": "connect-test"},
        500,
        ("connect-test",),
    )


def test_a_sink_of_typed_values_with_overrides() -> None:
    assert plan_query(DELTA, CLIENT) == PlannedQuery(
        ConnectorKind.SINK,
        "barnabas",
        {
            "startingOffsets": "latest",
            "subscribe": "orders,returns",
            "keyFormat": "json",
            "keySchema": "id BIGINT",
            "valueFormat": "avro",
            "schema.registry.url": "http://r:8081",
            "kafka.bootstrap.servers": "b:1",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.client.id": "lake",
        },
        "barnabas.delta",
        {"path": "/lake/orders", "insert.mode": "upsert", "pk.fields": "id", "delete.enabled": "true"},
        2000,
        ("orders", "returns"),
        deletes=True,
    )


def test_the_file_source_has_the_converters_of_the_worker() -> None:
    worker = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}
    plan = WorkerPlanner(CLIENT, worker).plan(FILE_SOURCE).planned
    assert plan.read_options == {"file": "/tmp/test.txt", "topic": "connect-test", **worker}
    routed = {**FILE_SOURCE, "transforms": "r", "transforms.r.type": "RegexRouter", "transforms.r.regex": "(.*)"}
    assert "is missing" in errors(**routed)["transforms.r.replacement"]


DEBEZIUM = {
    "name": "inventory",
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "tasks.max": "1",
    "database.hostname": "db",
    "database.user": "debezium",
    "database.password": "${file:/secrets:password}",
    "database.dbname": "shop",
    "topic.prefix": "shop",
    "table.include.list": "public.orders",
    "plugin.name": "pgoutput",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


def test_a_connector_of_debezium() -> None:
    planned = plan_query({**DEBEZIUM, "database.password": "secret"}, {"bootstrap.servers": "b:1"})
    assert (planned.read_format, planned.write_format, planned.is_staged) == ("barnabas.postgres", "barnabas", True)
    assert planned.read_options == {
        name: text for name, text in DEBEZIUM.items() if name not in ("connector.class", "tasks.max")
    } | {"database.password": "secret"}
    assert planned.write_options == {"kafka.bootstrap.servers": "b:1"}
    found = {finding.name: finding.errors for finding in findings_of({**DEBEZIUM, "slot.drop.on.stop": "true"})}
    assert "a dropped slot loses changes" in found["slot.drop.on.stop"][0]
    (without,) = [f.errors for f in findings_of({**DEBEZIUM, "table.include.list": "["}) if f.errors]
    assert "is not a regular expression" in without[0]


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("io.debezium.connector.mysql.MySqlConnector", "barnabas.mysql"),
        ("MySqlSource", "barnabas.mysql"),
        ("io.debezium.connector.mariadb.MariaDbConnector", "barnabas.mariadb"),
        ("MariaDbSourceConnector", "barnabas.mariadb"),
    ],
)
def test_a_connector_of_debezium_for_mysql(name: str, format: str) -> None:
    config = {
        "name": "inventory",
        "connector.class": name,
        "tasks.max": "1",
        "database.hostname": "mysql",
        "database.port": "3306",
        "database.user": "debezium",
        "database.password": "dbz",
        "database.server.id": "184054",
        "topic.prefix": "dbserver1",
        "database.include.list": "inventory",
        "errors.retry.timeout": "0",
    }
    assert [finding.errors for finding in findings_of(config) if finding.errors] == []
    planned = plan_query(config, CLIENT)
    assert (planned.read_format, planned.is_staged, planned.kind) == (format, True, ConnectorKind.SOURCE)
    assert planned.read_options["database.include.list"] == "inventory"
    (found,) = [f.errors for f in findings_of({**config, "database.ssl.keystore": "x.jks"}) if f.errors]
    assert "use database.ssl.ca with a PEM file" in found[0]
    (found,) = [f.errors for f in findings_of({**config, "database.ssl.mode": "verify_ca"}) if f.errors]
    assert "needs database.ssl.ca" in found[0]


MYSQL_TUTORIAL = {
    "name": "inventory-connector",
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "tasks.max": "1",
    "database.hostname": "mysql",
    "database.port": "3306",
    "database.user": "debezium",
    "database.password": "dbz",
    "database.server.id": "184054",
    "topic.prefix": "dbserver1",
    "database.include.list": "inventory",
}


@pytest.mark.parametrize("config", [MYSQL_TUTORIAL, {**DEBEZIUM, "database.password": "x"}], ids=["mysql", "postgres"])
def test_keys_that_only_tune_a_java_connector_are_accepted_and_have_no_effect(config: dict[str, str]) -> None:
    tuning = {
        "max.batch.size": "4096",
        "max.queue.size": "16384",
        "poll.interval.ms": "100",
        "snapshot.fetch.size": "10240",
        "errors.max.retries": "10",
        "exactly.once.support": "required",
        "transaction.boundary": "interval",
        "transaction.boundary.interval.ms": "1000",
        "offsets.storage.topic": "offsets",
        "config.action.reload": "none",
        "tasks.max.enforce": "false",
    }
    if config is MYSQL_TUTORIAL:
        tuning["schema.history.internal.kafka.bootstrap.servers"] = "kafka:9092"
        tuning["schema.history.internal.kafka.topic"] = "schema-changes.inventory"
    assert [finding.errors for finding in findings_of({**config, **tuning}) if finding.errors] == []
    assert plan_query({**config, **tuning}, CLIENT) == plan_query(config, CLIENT)
    wrong = {**config, "exactly.once.support": "never", "schema.history": "x", "topic.delimiter": "_"}
    assert {f.name for f in findings_of(wrong) if f.errors} == {
        "exactly.once.support",
        "schema.history",
        "topic.delimiter",
    }


def test_required_exactly_once_contradicts_at_least_once() -> None:
    config = {**FILE_SOURCE, "exactly.once.support": "required"}
    assert [finding.errors for finding in findings_of(config) if finding.errors] == []
    (found,) = [finding for finding in findings_of({**config, "delivery": "at-least-once"}) if finding.errors]
    assert found.name == "exactly.once.support" and "leave delivery out" in found.errors[0]


def test_the_salt_of_a_hash_keeps_its_case() -> None:
    rule = "column.mask.hash.v2.SHA-256.with.salt.CzQMA"
    config = {**DEBEZIUM, "database.password": "x", rule: "public.users.mail", "column.truncate.to.5.chars": ".*"}
    assert [finding.errors for finding in findings_of(config) if finding.errors] == []
    options = plan_query(config, CLIENT).read_options
    assert options["column.mask.hash.v2.SHA-256.with.salt.hex.437a514d41"] == "public.users.mail"
    (found,) = [f.errors for f in findings_of({**config, "column.mask.with.few.chars": "a"}) if f.errors]
    assert "column.mask.with.8.chars" in found[0]


def test_a_sink_of_records_has_the_converters_of_the_worker_and_its_own_transforms() -> None:
    config = {
        "name": "lake",
        "connector.class": "DeltaSink",
        "topics": "orders",
        "path": "/lake/${topic}",
        "key.converter": "StringConverter",
        "transforms": "drop",
        "transforms.drop.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.drop.exclude": "password",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "bad",
        "errors.retry.timeout": "-1",
    }
    worker = {
        "key.converter": "JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    planner = WorkerPlanner({"bootstrap.servers": "b:1"}, worker)
    assert [finding.errors for finding in planner.findings(config) if finding.errors] == []
    planned = planner.plan(config).planned
    assert planned.write_options == {
        name: text
        for name, text in config.items()
        if name not in ("name", "connector.class", "topics", "errors.retry.timeout")
    } | {
        "kafka.bootstrap.servers": "b:1",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    assert set(planned.read_options) == {"startingOffsets", "subscribe", "kafka.bootstrap.servers", "includeHeaders"}
    typed = planner.plan({**DELTA, "errors.tolerance": "all"}).planned
    assert "value.converter" not in typed.write_options
    assert typed.read_options["errors.tolerance"] == typed.write_options["errors.tolerance"] == "all"


def test_any_format_of_spark() -> None:
    config = {
        "name": "n",
        "connector.class": "SparkSink",
        "topics.regex": "orders.*",
        "spark.format": "parquet",
        "spark.option.path": "/lake/raw",
        "spark.select": "key, value, topic",
        "maxOffsetsPerTrigger": "10",
    }
    planned = plan_query(config, {"bootstrap.servers": "b:1"})
    assert (planned.write_format, planned.write_options) == ("parquet", {"path": "/lake/raw"})
    assert planned.read_options == {
        "startingOffsets": "earliest",
        "subscribePattern": "orders.*",
        "maxOffsetsPerTrigger": "10",
        "kafka.bootstrap.servers": "b:1",
    }
    assert planned.select == "key, value, topic"


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"insert__mod": "upsert"}, "insert.mod", "did you mean insert.mode?"),
        ({"insert__mode": "replace"}, "insert.mode", "must be one of"),
        ({"topics": ""}, "topics", "either topics or topics.regex"),
        ({"topics__regex": "x"}, "topics", "either topics or topics.regex"),
        ({"value__converter": "org.apache.kafka.connect.json.JsonConverter"}, "value.converter", "valueFormat"),
        ({"consumer__override__auto__offset__reset": "none"}, "consumer.override.auto.offset.reset", "earliest or"),
        ({"trigger__interval__ms": "soon"}, "trigger.interval.ms", "soon"),
        ({"kafka.bootstrap.servers": "x:1"}, "kafka.bootstrap.servers", "has no key"),
        ({"path": ""}, "path", "path"),
    ],
)
def test_a_wrong_key_is_named(change: dict[str, str], key: str, words: str) -> None:
    given = {name.replace(".", "__"): text for name, text in DELTA.items()} | change
    found = errors(**given)
    assert list(found) == [key] and words in found[key]
    with pytest.raises(OptionError):
        plan_query({name.replace("__", "."): text for name, text in given.items()}, CLIENT)


def test_a_reference_to_a_secret_is_not_checked() -> None:
    assert errors(**{**DELTA, "trigger.interval.ms": "${env:TRIGGER}"}) == {}
    assert errors(connector__class="SparkSource") == {"spark.format": "spark.format is missing; it must be given"}


POSTGRES = {"connection.url": "jdbc:postgresql://h:5432/d", "value.converter": "JsonConverter"}
SINKS: dict[str, dict[str, str]] = {
    "JdbcSink": POSTGRES,
    "DebeziumJdbcSink": POSTGRES,
    "DeltaSink": {"path": "/x"},
    "IcebergSink": {"table": "a.b", "catalog.warehouse": "/x"},
    "HttpSink": {"http.url": "http://h/"},
    "FileStreamSink": {"file": "/tmp/x"},
}
PROTOBUF = "io.confluent.connect.protobuf.ProtobufConverter"
MASK = {"transforms": "maskCard", "transforms.maskCard.type": "MaskField$Value"}


@pytest.mark.parametrize("name", SINKS)
@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"transforms": "a", "transforms.a.type": "NoSuchSMT"}, "transforms.a.type", "names no transform"),
        ({**MASK, "transforms.maskCard.feelds": "x"}, "transforms.maskCard.feelds", "did you mean"),
        (MASK, "transforms.maskCard.fields", "is missing"),
        ({"transforms": "a"}, "transforms.a.type", "is missing"),
        ({"value.converter": PROTOBUF}, "value.converter", "is not supported"),
        ({"key.converter": "Mine"}, "key.converter", "names no converter"),
        (
            {"value.converter": "JsonConverter", "value.converter.schema.enable": "false"},
            "value.converter.schema.enable",
            "did you mean value.converter.schemas.enable?",
        ),
        ({**MASK, "transforms.maskCard.fields": "x", "predicates": "p"}, "predicates.p.type", "is missing"),
    ],
)
def test_the_converters_and_transforms_of_every_sink_are_checked(
    name: str, change: dict[str, str], key: str, words: str
) -> None:
    config = {"name": "n", "connector.class": name, "topics": "t", **SINKS[name]}
    assert [finding.errors for finding in findings_of(config) if finding.errors] == []
    ((found, messages),) = ((f.name, f.errors) for f in findings_of({**config, **change}) if f.errors)
    assert (found, len(messages)) == (key, 1) and words in messages[0]


def test_wrong_converters_of_the_worker_are_named() -> None:
    config = {"name": "n", "connector.class": "DeltaSink", "topics": "t", "path": "/x"}
    found = WorkerPlanner(CLIENT, {"value.converter": PROTOBUF}).findings(config)
    assert [finding.name for finding in found if finding.errors] == ["value.converter"]


SECRET = "${file:/s:p}"


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"connection.password": SECRET, "insert.mode": "upsert"}, "insert.mode"),
        ({"connection.url": f"jdbc:postgresql://h/d?user=u&password={SECRET}", "insert.mode": "upsert"}, "insert.mode"),
        ({"connection.url": SECRET, "insert.mode": "upsert"}, "insert.mode"),
        ({"connection.url": f"jdbc:postgresql://{SECRET}:{SECRET}/d", "delete.enabled": "true"}, "delete.enabled"),
        ({"connection.password": SECRET, "transforms": "a", "transforms.a.type": "None"}, "transforms.a.type"),
        ({"batch.size": SECRET, "errors.deadletterqueue.topic.name": "bad"}, "errors.deadletterqueue.topic.name"),
        # the values of these are known to the worker that starts the connector
        ({"insert.mode": "upsert", "pk.mode": SECRET}, None),
        ({"insert.mode": SECRET, "pk.mode": "record_key"}, None),
        ({"connection.url": f"{SECRET}/shop"}, None),
        ({"connection.url": f"jdbc:postgresql://h/d?{SECRET}=x"}, None),
        ({"auto.create": SECRET, "max.retries": SECRET, "topics": SECRET, "consumer.override.client.id": SECRET}, None),
        ({"transforms": SECRET, "transforms.a.type": "RegexRouter"}, None),
        ({"transforms": "a", "transforms.a.type": SECRET}, None),
        ({"value.converter": SECRET, "value.converter.schemas.enable": "false"}, None),
        ({"value.converter": "JsonConverter", "value.converter.schemas.enable": SECRET}, None),
        ({"consumer.override.auto.offset.reset": SECRET}, None),
    ],
)
def test_keys_beside_a_reference_are_checked_together(config: dict[str, str], key: str | None) -> None:
    found = findings_of({"name": "n", "connector.class": "JdbcSink", "topics": "t", **POSTGRES, **config})
    assert [finding.name for finding in found if finding.errors] == ([] if key is None else [key])


@pytest.mark.parametrize("name", ["HttpSink", "DebeziumJdbcSink"])
def test_an_address_that_is_a_reference_is_allowed(name: str) -> None:
    address = {key: f"{SECRET}/hook" for key in SINKS[name] if key.endswith(".url")}
    config = {"name": "n", "connector.class": name, "topics": "t", **address}
    assert [finding.errors for finding in findings_of(config) if finding.errors] == []


def test_the_driver_of_a_jdbc_sink_has_no_effect_on_a_database_with_a_sink_of_its_own() -> None:
    with_driver = {**JDBC_SINK, "connection.driver": "org.postgresql.Driver"}
    assert [finding.errors for finding in findings_of(with_driver) if finding.errors] == []
    assert plan_query(with_driver, CLIENT) == plan_query(JDBC_SINK, CLIENT)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("consumer.override.max.pol.records", "Did you mean 'consumer.override.max.poll.records'?"),
        ("consumer.override.enable.auto.commit", "the position is in Spark's checkpoint"),
        ("consumer.override.fetch.message.max.bytes", "set max.partition.fetch.bytes"),
        ("producer.override.max.pol.records", None),  # this sink has no producer
        ("consumer.override.metric.reporters", None),
    ],
)
def test_overrides_that_no_client_has_are_refused(key: str, words: str | None) -> None:
    found = {f.name: f.errors for f in findings_of({**JDBC_SINK, key: "1"}) if f.errors}
    assert list(found) == ([] if words is None else [key])
    assert words is None or words in found[key][0]


def test_an_override_that_gives_up_exactly_once_needs_the_other_delivery() -> None:
    source = {"name": "n", "connector.class": "FileStreamSource", "file": "/tmp/x", "topic": "t"}
    override = {"producer.override.acks": "1"}
    (wrong,) = [f for f in findings_of({**source, **override}) if f.errors]
    assert wrong.name == "producer.override.acks"
    assert "needs delivery=at-least-once" in wrong.errors[0]
    assert not [f for f in findings_of({**source, **override, "delivery": "at-least-once"}) if f.errors]
    assert not [f for f in findings_of({**source, "producer.override.acks": "all"}) if f.errors]


def test_dead_letters_have_the_overrides_of_producers() -> None:
    config = {
        **JDBC_SINK,
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "bad",
        "producer.override.compression.type": "zstd",
        "consumer.override.isolation.level": "read_uncommitted",
    }
    planned = plan_query(config, CLIENT)
    of_kafka = {name: text for name, text in planned.write_options.items() if name.startswith("kafka.")}
    shared = {"kafka.bootstrap.servers": "b:1", "kafka.sasl.mechanism": "PLAIN"}
    assert of_kafka == {**shared, "kafka.compression.type": "zstd"}
    assert planned.read_options["kafka.isolation.level"] == "read_uncommitted"
    wrong = [f.name for f in findings_of({**config, "producer.override.ack": "1"}) if f.errors]
    assert wrong == ["producer.override.ack"]


def test_an_unknown_connector_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(LookupError, match=r"did you mean DeltaSink\?"):
        findings_of({"connector.class": "DeltaSnk"})
    assert WorkerPlanner(CLIENT).kind({"connector.class": "Nothing"}) is ConnectorKind.UNKNOWN


@pytest.mark.parametrize("found", CONNECTORS, ids=lambda row: row.name)
def test_every_connector_is_found_by_all_its_names_and_describes_its_keys(found: ConnectorRow) -> None:
    for name in (found.name, f"{found.name}Connector", *found.aliases):
        assert find_connector(name) is found
    definitions = definitions_of(found)
    names = [definition.name for definition in definitions]
    assert len(names) == len(set(names)) and {"connector.class", "tasks.max"} <= set(names)
    assert all(definition.documentation for definition in definitions)
    assert {plugin.class_name for plugin in WorkerPlanner(CLIENT).plugins()} >= {found.name, *found.aliases}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"value.converter": "Mine"}, "names no converter"),
        ({"transforms": "a", "transforms.a.type": "Unwrap"}, "transforms.a.type"),
    ],
)
def test_wrong_converters_and_transforms_of_a_captured_database_are_named(
    changed: dict[str, str], message: str
) -> None:
    given = {**DEBEZIUM, "database.password": "secret", **changed}
    ((error,),) = (finding.errors for finding in findings_of(given) if finding.errors)
    assert message in error


JDBC_SINK = {
    "name": "sink",
    "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
    "tasks.max": "1",
    "topics": "orders",
    "connection.url": "jdbc:postgresql://db:5432/shop?user=u&password=p",
    "auto.create": "true",
    "insert.mode": "upsert",
    "pk.mode": "record_key",
    "pk.fields": "id",
    "delete.enabled": "true",
    "value.converter": "JsonConverter",
}


@pytest.mark.parametrize(
    ("url", "format", "is_staged"),
    [
        ("jdbc:postgresql://db:5432/shop?user=u", "barnabas.postgres", False),
        ("jdbc:mysql://u:p@db/shop", "barnabas.mysql", False),
        ("jdbc:mariadb://u:p@db:3307/shop", "barnabas.mariadb", False),
        ("jdbc:sqlite:/data/shop.db", "barnabas.sqlite", True),
        ("jdbc:duckdb:/data/shop.db", "barnabas.duckdb", True),
    ],
)
def test_the_url_of_a_jdbc_sink_chooses_the_format(url: str, format: str, is_staged: bool) -> None:
    config = {**JDBC_SINK, "connection.url": url}
    assert [finding.errors for finding in findings_of(config) if finding.errors] == []
    planned = plan_query(config, CLIENT)
    assert (planned.write_format, planned.is_staged, planned.write_options["connection.url"]) == (
        format,
        is_staged,
        url,
    )


def test_any_other_database_is_written_by_spark() -> None:
    config = {
        "name": "sink",
        "connector.class": "JdbcSinkConnector",
        "topics": "orders",
        "connection.url": "jdbc:oracle:thin:@db:1521/shop",
        "connection.user": "u",
        "connection.password": "p",
        "connection.driver": "oracle.jdbc.OracleDriver",
        "table.name.format": "ORDERS",
        "insert.mode": "insert",
        "valueFormat": "avro",
        "schema.registry.url": "http://r:8081",
    }
    assert [finding.errors for finding in findings_of(config) if finding.errors] == []
    planned = plan_query(config, CLIENT)
    assert (planned.write_format, planned.write_options) == (
        "jdbc",
        {
            "url": "jdbc:oracle:thin:@db:1521/shop",
            "user": "u",
            "password": "p",
            "driver": "oracle.jdbc.OracleDriver",
            "dbtable": "ORDERS",
        },
    )
    for change, words in (
        ({"insert.mode": "upsert"}, "Spark's own JDBC writer adds rows"),
        ({"auto.create": "true"}, "auto.create is not supported for this database"),
        ({"table.name.format": "${topic}"}, "must name one table"),
    ):
        (found,) = [f.errors for f in findings_of({**config, **change}) if f.errors]
        assert words in found[0]
    untyped = {name: text for name, text in config.items() if name not in ("valueFormat", "schema.registry.url")}
    with pytest.raises(OptionError, match="give valueFormat"):
        plan_query(untyped, CLIENT)


def test_the_jdbc_sink_of_debezium_has_its_own_names() -> None:
    config = {
        "name": "sink",
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": "1",
        "topics": "shop.public.orders",
        "connection.url": "jdbc:postgresql://db/shop",
        "connection.username": "u",
        "connection.password": "p",
        "connection.pool.max_size": "8",
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "basic",
        "use.time.zone": "UTC",
        "transforms": "route",
        "transforms.route.type": "RegexRouter",
        "transforms.route.regex": "(.*)",
        "transforms.route.replacement": "$1",
    }
    assert [finding.errors for finding in findings_of(config) if finding.errors] == []
    assert plan_query(config, CLIENT).write_options == {
        "connection.url": "jdbc:postgresql://db/shop",
        "connection.user": "u",
        "connection.password": "p",
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "pk.mode": "record_key",
        "auto.create": "true",
        "auto.evolve": "true",
        "db.timezone": "UTC",
        "table.name.format": "${topic_}",
        "quote.sql.identifiers": "never",
        "transforms": "route,barnabasUnwrap",
        "transforms.route.type": "RegexRouter",
        "transforms.route.regex": "(.*)",
        "transforms.route.replacement": "$1",
        "transforms.barnabasunwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.barnabasunwrap.delete.tombstone.handling.mode": "delete-to-tombstone",
    }
    for change, words in (
        ({"schema.evolution": "full"}, "none or basic"),
        ({"collection.name.format": "${source.table}"}, "name the table by ${topic}"),
        ({"primary.key.mode": "record_header"}, "ValueToKey"),
        ({"truncate.enabled": "true"}, "not supported"),
        ({"valueFormat": "json"}, "reads records with converters"),
    ):
        (found,) = [f.errors for f in findings_of({**config, **change}) if f.errors]
        assert words in found[0]


def test_a_jdbc_source_polls_the_database_of_its_url() -> None:
    config = {
        "name": "source",
        "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
        "tasks.max": "1",
        "connection.url": "jdbc:mysql://db:3306/shop",
        "connection.user": "u",
        "connection.password": "p",
        "mode": "timestamp+incrementing",
        "incrementing.column.name": "id",
        "timestamp.column.name": "changed",
        "topic.prefix": "mysql-",
        "table.whitelist": "orders",
    }
    assert [finding.errors for finding in findings_of(config) if finding.errors] == []
    planned = plan_query(config, CLIENT)
    assert (planned.read_format, planned.is_staged) == ("barnabas.mysql", True)
    assert planned.read_options["mode"] == "timestamp+incrementing"
    (found,) = [f.errors for f in findings_of({**config, "connection.url": "jdbc:oracle:thin:@db"}) if f.errors]
    assert "has no streaming source" in found[0]
    (found,) = [f.errors for f in findings_of({**config, "mode": "sometimes"}) if f.errors]
    assert "mode" in found[0]


def test_a_source_creates_topics_with_the_settings_of_connect() -> None:
    creation = {"topic.creation.default.partitions": "3", "topic.creation.default.replication.factor": "-1"}
    assert plan_query({**FILE_SOURCE, **creation}, CLIENT).write_options == {
        "kafka.bootstrap.servers": "b:1",
        "kafka.sasl.mechanism": "PLAIN",
        "topic": "connect-test",
        **creation,
    }
    wrong = {**FILE_SOURCE, **creation, "topic.creation.default.partitions": "x"}
    (found,) = [finding for finding in findings_of(wrong) if finding.errors]
    assert (found.name, "a number from 1" in found.errors[0]) == ("topic.creation.default.partitions", True)
    (found,) = [finding for finding in findings_of({**DELTA, **creation}) if finding.name in creation][:1]
    assert "has no key" in found.errors[0]
