"""The option table: accepted options, rejected options, and errors that name the remedy."""

from __future__ import annotations

import pytest
from tests.logs import messages

from barnabas.core.ids import TopicPartition
from barnabas.spark.errors import OptionError
from barnabas.spark.given_options import GivenOptions
from barnabas.spark.options import OPTIONS, OnDataLoss, QueryMode
from barnabas.spark.sink.options import ExactlyOnce, SinkOptions, parse_sink_options
from barnabas.spark.source.options import Limits, SourceOptions, Splitting, columns_of, parse_source_options
from barnabas.spark.source.positions import (
    EARLIEST,
    LATEST,
    AtEdge,
    AtOffsets,
    AtTimestamps,
    Boundary,
    MissingTimestamp,
    SourceSubscription,
)

SERVERS = {"kafka.bootstrap.servers": "h:9092"}


def parse(mode: QueryMode = QueryMode.STREAM, **options: str) -> SourceOptions:
    return parse_source_options({**SERVERS, "subscribe": "t", **options}, mode)


def test_the_defaults_are_those_of_sparks_own_connector() -> None:
    assert parse(QueryMode.STREAM) == SourceOptions(
        client={"bootstrap.servers": "h:9092"},
        subscription=SourceSubscription(topics=("t",)),
        starting=AtEdge(LATEST),
        ending=AtEdge(LATEST),
    )
    assert parse(QueryMode.BATCH).starting == AtEdge(EARLIEST)


def test_names_are_case_insensitive() -> None:
    options = parse_source_options(
        {
            "KAFKA.Bootstrap.Servers": "h:1",
            "SUBSCRIBE": "a",
            "STARTINGOFFSETS": "Earliest",
            "maxoffsetspertrigger": "7",
        },
        QueryMode.STREAM,
    )
    assert options.client == {"bootstrap.servers": "h:1"}
    assert options.subscription == SourceSubscription(topics=("a",))
    assert options.starting == AtEdge(EARLIEST)
    assert options.limits == Limits(max_offsets=7)


def test_client_settings_are_passed_on() -> None:
    options = parse(**{"kafka.security.protocol": "SASL_SSL", "kafka.isolation.level": "read_committed"})
    assert options.client == {
        "bootstrap.servers": "h:9092",
        "security.protocol": "SASL_SSL",
        "isolation.level": "read_committed",
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": " a, b ,a,"}, SourceSubscription(topics=("a", "b"))),
        ({"subscribePattern": "orders-.*"}, SourceSubscription(pattern="orders-.*")),
        (
            {"assign": '{"b": [2], "a": [1, 0]}'},
            SourceSubscription(assigned=(TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 2))),
        ),
    ],
)
def test_subscription_options_are_parsed(options: dict[str, str], expected: SourceSubscription) -> None:
    assert parse_source_options({**SERVERS, **options}, QueryMode.BATCH).subscription == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "earliest"}, AtEdge(EARLIEST)),
        (
            {"startingOffsets": '{"t": {"0": 5, "1": -2}}'},
            AtOffsets({TopicPartition("t", 0): 5, TopicPartition("t", 1): -2}),
        ),
        ({"startingTimestamp": "1000", "startingOffsets": "latest"}, AtTimestamps(everywhere=1000)),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": 9}}', "startingOffsetsByTimestampStrategy": "LATEST"},
            AtTimestamps({TopicPartition("t", 0): 9}, missing=MissingTimestamp.LATEST),
        ),
        ({"startingTimestamp": "1", "startingOffsetsByTimestamp": '{"t": {"0": 9}}'}, AtTimestamps(everywhere=1)),
    ],
)
def test_starting_options_are_parsed(options: dict[str, str], expected: Boundary) -> None:
    assert parse(QueryMode.STREAM, **options).starting == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"endingOffsets": "latest"}, AtEdge(LATEST)),
        ({"endingOffsets": '{"t": {"0": -1}}'}, AtOffsets({TopicPartition("t", 0): -1})),
        ({"endingTimestamp": "7"}, AtTimestamps(everywhere=7, missing=MissingTimestamp.LATEST)),
    ],
)
def test_ending_options_are_parsed(options: dict[str, str], expected: Boundary) -> None:
    assert parse(QueryMode.BATCH, **options).ending == expected


def test_limits_splitting_and_group_are_parsed() -> None:
    options = parse(
        maxBytesPerTrigger="32m",
        minOffsetsPerTrigger="10",
        maxOffsetsPerTrigger="10",
        maxTriggerDelay="90s",
        minPartitions="8",
        maxRecordsPerPartition="1000",
        maxBytesPerPartition="512k",
        failOnDataLoss="report",
        groupId="g",
    )
    assert options.limits == Limits(max_offsets=10, max_bytes=32 << 20, min_offsets=10, max_delay_ms=90_000)
    assert options.splitting == Splitting(min_tasks=8, max_records=1000, max_bytes=512 << 10)
    assert options.on_data_loss is OnDataLoss.REPORT
    assert options.progress_group == "g"
    assert parse(**{"group.id": "h"}).progress_group == "h"


def test_column_options_select_columns() -> None:
    assert columns_of({}) == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert columns_of({"INCLUDEHEADERS": "true"})[-1] == "headers"
    assert columns_of({"includeValue": "false", "includeKey": "FALSE"})[0] == "topic"
    assert columns_of({"columns": "offset, timestamptype,Headers"}) == ("offset", "timestampType", "headers")


@pytest.mark.parametrize(
    ("mode", "options", "says"),
    [
        (QueryMode.BATCH, {"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers must be given"),
        (QueryMode.BATCH, {"assign": '{"a": [0]}'}, "got subscribe and assign"),
        (QueryMode.BATCH, {"subscribe": " , "}, "subscribe names no topic"),
        (QueryMode.BATCH, {"startingOffsets": "latest"}, "cannot be latest"),
        (QueryMode.BATCH, {"startingOffsets": '{"t": {"0": -1}}'}, "cannot be latest"),
        (QueryMode.BATCH, {"endingOffsets": "earliest"}, "cannot be earliest"),
        (QueryMode.BATCH, {"endingOffsets": '{"t": {"0": -2}}'}, "cannot be earliest"),
        (QueryMode.STREAM, {"endingOffsets": "latest"}, "not valid in a streaming query"),
        (QueryMode.STREAM, {"endingTimestamp": "1"}, "not valid in a streaming query"),
        (QueryMode.STREAM, {"startingOffsets": "first"}, 'earliest, latest or JSON such as {"topicA"'),
        (QueryMode.STREAM, {"startingOffsets": '{"t": {"0": -3}}'}, "below -2"),
        (QueryMode.STREAM, {"startingOffsets": '{"t": [1]}'}, "startingOffsets must look like"),
        (QueryMode.STREAM, {"startingOffsets": '{"t": {"0": true}}'}, "startingOffsets must look like"),
        (QueryMode.STREAM, {"startingOffsets": "{}"}, "names no partition"),
        (QueryMode.STREAM, {"startingTimestamp": "-1"}, "milliseconds since 1970"),
        (QueryMode.STREAM, {"startingOffsetsByTimestampStrategy": "guess"}, "one of error, latest"),
        (QueryMode.STREAM, {"failOnDataLoss": "maybe"}, "one of true, false, report"),
        (QueryMode.STREAM, {"maxOffsetsPerTrigger": "0"}, "an integer above 0"),
        (QueryMode.STREAM, {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "must not exceed"),
        (QueryMode.STREAM, {"maxTriggerDelay": "soon"}, "500ms, 30s or 15m"),
        (QueryMode.STREAM, {"maxBytesPerTrigger": "lots"}, "512k or 64m"),
        (QueryMode.STREAM, {"includeHeaders": "yes"}, "true or false"),
        (QueryMode.STREAM, {"columns": "key,vlaue"}, "there is no column 'vlaue'"),
        (QueryMode.STREAM, {"columns": "key,key"}, "once"),
        (QueryMode.STREAM, {"columns": "value", "includeValue": "false"}, "includeValue=false"),
        (QueryMode.STREAM, {"groupId": "a", "group.id": "b"}, "two names of one option"),
        (QueryMode.STREAM, {"groupId": ""}, "groupId is empty"),
        (QueryMode.STREAM, {"kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
        (QueryMode.STREAM, {"kafka.enable.auto.commit": "true"}, "checkpoint"),
        (QueryMode.STREAM, {"kafka.key.deserializer": "x"}, "always bytes"),
        (QueryMode.STREAM, {"kafka.interceptor.classes": "x"}, "not supported"),
    ],
)
def test_invalid_options_raise_an_error_with_the_remedy(mode: QueryMode, options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse(mode, **options)
    assert says in str(refused.value)


@pytest.mark.parametrize("options", [{}, {"subscribePattern": "("}, {"assign": "[]"}, {"assign": "{}"}])
def test_missing_or_invalid_subscription_is_rejected(options: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        parse_source_options({**SERVERS, **options}, QueryMode.BATCH)


def test_sink_options_are_parsed() -> None:
    assert parse_sink_options(
        {**SERVERS, "Topic": "out", "kafka.acks": "1", "checkpointLocation": "/x"}
    ) == SinkOptions(client={"bootstrap.servers": "h:9092", "acks": "1"}, topic="out", visible_timeout_ms=30_000)
    assert parse_sink_options({**SERVERS, "includeHeaders": "true"}).include_headers
    for wrong in ({}, {**SERVERS, "topic": " "}, {**SERVERS, "kafka.value.serializer": "x"}):
        with pytest.raises(OptionError):
            parse_sink_options(wrong)


def test_the_table_documents_each_option_once() -> None:
    names = [row.name.lower() for row in OPTIONS]
    assert len(set(names)) == len(names)
    assert all(row.meaning.endswith(".") for row in OPTIONS)


def test_each_row_gives_its_options_parser_and_default() -> None:
    given = GivenOptions({"MINPARTITIONS": " 8 "})
    assert given.get("minPartitions") == 8
    assert all(given.get(row.name) == row.default for row in OPTIONS if row.name != "minPartitions")
    with pytest.raises(KeyError):
        given.get("an.option.without.a.row")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("startingOffset", "did you mean startingOffsets?"),
        ("maxoffsetpertrigger", "did you mean maxOffsetsPerTrigger?"),
        ("bootstrap.servers", "did you mean kafka.bootstrap.servers?"),
        ("zzz", "docs/SPARK.md has a list"),
    ],
)
def test_a_misspelt_option_is_rejected_with_the_nearest_name(name: str, hint: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(QueryMode.STREAM, **{name: "earliest"})
    assert f"there is no option {name.lower() if name == 'zzz' else ''}" in str(caught.value)
    assert hint in str(caught.value)
    with pytest.raises(OptionError):
        parse_sink_options({**SERVERS, name: "x"})


def test_a_misspelt_client_setting_is_rejected_with_the_nearest_name() -> None:
    with pytest.raises(OptionError, match=r"'kafka\.fetch\.max\.byte'.* Did you mean 'kafka\.fetch\.max\.bytes'\?"):
        parse(QueryMode.BATCH, **{"kafka.fetch.max.byte": "1"})
    with pytest.raises(OptionError, match=r"kafka\.queue\.buffering\.max\.ms is .* Here: set linger\.ms"):
        parse_sink_options({**SERVERS, "kafka.queue.buffering.max.ms": "1"})


def test_options_of_spark_and_of_other_clients_are_accepted() -> None:
    of_spark = {"path": "p", "checkpointLocation": "c", "queryName": "q", "serialization.format": "1"}
    assert parse(QueryMode.STREAM, **of_spark) == parse(QueryMode.STREAM)
    assert parse(QueryMode.BATCH, **of_spark) == parse(QueryMode.BATCH)
    assert parse_sink_options({**SERVERS, **of_spark}) == parse_sink_options(SERVERS)
    assert "metric.reporters" in parse(QueryMode.BATCH, **{"kafka.metric.reporters": "x.Y"}).client


def test_an_option_of_another_kind_of_query_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    parse(QueryMode.BATCH, maxOffsetsPerTrigger="7")
    assert messages(caplog, "barnabas.spark") == [
        "the option maxOffsetsPerTrigger has no effect here: it is for stream"
    ]


def test_delivery_defaults_to_exactly_once_in_streams_only() -> None:
    assert parse_sink_options(SERVERS, QueryMode.BATCH).exactly_once is None
    assert parse_sink_options(SERVERS, QueryMode.STREAM).exactly_once == ExactlyOnce()
    at_least_once = {**SERVERS, "delivery": "at-least-once"}
    assert parse_sink_options(at_least_once, QueryMode.STREAM).exactly_once is None
    assert parse_sink_options(at_least_once, QueryMode.STREAM).visible_timeout_ms == 0
    given = {**at_least_once, "delivery.visible.timeout.ms": "5000"}
    assert parse_sink_options(given, QueryMode.STREAM).visible_timeout_ms == 5_000
    given = {
        **SERVERS,
        "delivery": "exactly-once",
        "deliveryLedger": "mine",
        "transactionalIdPrefix": "p",
        "checkpointLocation": "/c",
        "failOnDataLoss": "false",
        "kafka.transaction.two.phase.commit.enable": "true",
    }
    parsed = parse_sink_options(given, QueryMode.BATCH)
    assert parsed.exactly_once == ExactlyOnce("mine", "p", two_phase=True, accept_loss=True, checkpoint="/c")
    assert "transaction.two.phase.commit.enable" not in parsed.client


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"delivery": "at-most-once"}, "delivery must be one of at-least-once, exactly-once"),
        ({"kafka.acks": "1"}, "kafka.acks=1 is not possible with delivery=exactly-once"),
        ({"kafka.enable.idempotence": "false"}, "not possible with delivery=exactly-once"),
        ({"kafka.transactional.id": "x"}, "use transactionalIdPrefix"),
        ({"deliveryLedger": " "}, "deliveryLedger is empty"),
        (
            {"kafka.transaction.two.phase.commit.enable": "true", "kafka.transaction.timeout.ms": "1000"},
            "has no effect",
        ),
        (
            {"delivery": "at-least-once", "kafka.transaction.two.phase.commit.enable": "true"},
            "is for delivery=exactly-once",
        ),
    ],
)
def test_delivery_options_that_contradict_each_other_are_rejected(wrong: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_sink_options({**SERVERS, **wrong}, QueryMode.STREAM)
    assert says in str(refused.value)
