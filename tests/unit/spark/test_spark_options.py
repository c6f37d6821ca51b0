"""The option table: accepted options, rejected options, and errors that name the remedy."""

from __future__ import annotations

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.spark.errors import OptionError
from barnabas.spark.options import (
    OPTIONS,
    ExactlyOnce,
    GivenOptions,
    Limits,
    OnDataLoss,
    ReadMode,
    SinkOptions,
    SourceOptions,
    Splitting,
    columns_of,
    parse_sink_options,
    parse_source_options,
)
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


def parse(mode: ReadMode = ReadMode.STREAM, **options: str) -> SourceOptions:
    return parse_source_options({**SERVERS, "subscribe": "t", **options}, mode)


def test_the_defaults_are_those_of_sparks_own_connector() -> None:
    assert parse(ReadMode.STREAM) == SourceOptions(
        client={"bootstrap.servers": "h:9092"},
        subscription=SourceSubscription(topics=("t",)),
        starting=AtEdge(LATEST),
        ending=AtEdge(LATEST),
    )
    assert parse(ReadMode.BATCH).starting == AtEdge(EARLIEST)


def test_names_are_case_insensitive() -> None:
    options = parse_source_options(
        {
            "KAFKA.Bootstrap.Servers": "h:1",
            "SUBSCRIBE": "a",
            "STARTINGOFFSETS": "Earliest",
            "maxoffsetspertrigger": "7",
        },
        ReadMode.STREAM,
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
    assert parse_source_options({**SERVERS, **options}, ReadMode.BATCH).subscription == expected


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
    assert parse(ReadMode.STREAM, **options).starting == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"endingOffsets": "latest"}, AtEdge(LATEST)),
        ({"endingOffsets": '{"t": {"0": -1}}'}, AtOffsets({TopicPartition("t", 0): -1})),
        ({"endingTimestamp": "7"}, AtTimestamps(everywhere=7, missing=MissingTimestamp.LATEST)),
    ],
)
def test_ending_options_are_parsed(options: dict[str, str], expected: Boundary) -> None:
    assert parse(ReadMode.BATCH, **options).ending == expected


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
        (ReadMode.BATCH, {"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers must be given"),
        (ReadMode.BATCH, {"assign": '{"a": [0]}'}, "got subscribe and assign"),
        (ReadMode.BATCH, {"subscribe": " , "}, "subscribe names no topic"),
        (ReadMode.BATCH, {"startingOffsets": "latest"}, "cannot be latest"),
        (ReadMode.BATCH, {"startingOffsets": '{"t": {"0": -1}}'}, "cannot be latest"),
        (ReadMode.BATCH, {"endingOffsets": "earliest"}, "cannot be earliest"),
        (ReadMode.BATCH, {"endingOffsets": '{"t": {"0": -2}}'}, "cannot be earliest"),
        (ReadMode.STREAM, {"endingOffsets": "latest"}, "not valid in a streaming query"),
        (ReadMode.STREAM, {"endingTimestamp": "1"}, "not valid in a streaming query"),
        (ReadMode.STREAM, {"startingOffsets": "first"}, 'earliest, latest or JSON such as {"topicA"'),
        (ReadMode.STREAM, {"startingOffsets": '{"t": {"0": -3}}'}, "below -2"),
        (ReadMode.STREAM, {"startingOffsets": '{"t": [1]}'}, "startingOffsets must look like"),
        (ReadMode.STREAM, {"startingOffsets": '{"t": {"0": true}}'}, "startingOffsets must look like"),
        (ReadMode.STREAM, {"startingOffsets": "{}"}, "names no partition"),
        (ReadMode.STREAM, {"startingTimestamp": "-1"}, "milliseconds since 1970"),
        (ReadMode.STREAM, {"startingOffsetsByTimestampStrategy": "guess"}, "one of error, latest"),
        (ReadMode.STREAM, {"failOnDataLoss": "maybe"}, "one of true, false, report"),
        (ReadMode.STREAM, {"maxOffsetsPerTrigger": "0"}, "an integer above 0"),
        (ReadMode.STREAM, {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "must not exceed"),
        (ReadMode.STREAM, {"maxTriggerDelay": "soon"}, "500ms, 30s or 15m"),
        (ReadMode.STREAM, {"maxBytesPerTrigger": "lots"}, "512k or 64m"),
        (ReadMode.STREAM, {"includeHeaders": "yes"}, "true or false"),
        (ReadMode.STREAM, {"columns": "key,vlaue"}, "there is no column 'vlaue'"),
        (ReadMode.STREAM, {"columns": "key,key"}, "once"),
        (ReadMode.STREAM, {"columns": "value", "includeValue": "false"}, "includeValue=false"),
        (ReadMode.STREAM, {"groupId": "a", "group.id": "b"}, "two names of one option"),
        (ReadMode.STREAM, {"groupId": ""}, "groupId is empty"),
        (ReadMode.STREAM, {"kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
        (ReadMode.STREAM, {"kafka.enable.auto.commit": "true"}, "checkpoint"),
        (ReadMode.STREAM, {"kafka.key.deserializer": "x"}, "always bytes"),
        (ReadMode.STREAM, {"kafka.interceptor.classes": "x"}, "not supported"),
    ],
)
def test_invalid_options_raise_an_error_with_the_remedy(mode: ReadMode, options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse(mode, **options)
    assert says in str(refused.value)


@pytest.mark.parametrize("options", [{}, {"subscribePattern": "("}, {"assign": "[]"}, {"assign": "{}"}])
def test_missing_or_invalid_subscription_is_rejected(options: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        parse_source_options({**SERVERS, **options}, ReadMode.BATCH)


def test_sink_options_are_parsed() -> None:
    assert parse_sink_options(
        {**SERVERS, "Topic": "out", "kafka.acks": "1", "checkpointLocation": "/x"}
    ) == SinkOptions(client={"bootstrap.servers": "h:9092", "acks": "1"}, topic="out")
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
        parse(ReadMode.STREAM, **{name: "earliest"})
    assert f"there is no option {name.lower() if name == 'zzz' else ''}" in str(caught.value)
    assert hint in str(caught.value)
    with pytest.raises(OptionError):
        parse_sink_options({**SERVERS, name: "x"})


def test_a_misspelt_client_setting_is_rejected_with_the_nearest_name() -> None:
    with pytest.raises(OptionError, match=r"'kafka\.fetch\.max\.byte'.* Did you mean 'kafka\.fetch\.max\.bytes'\?"):
        parse(ReadMode.BATCH, **{"kafka.fetch.max.byte": "1"})
    with pytest.raises(OptionError, match=r"kafka\.queue\.buffering\.max\.ms is .* Here: set linger\.ms"):
        parse_sink_options({**SERVERS, "kafka.queue.buffering.max.ms": "1"})


def test_options_of_spark_and_of_other_clients_are_accepted() -> None:
    of_spark = {"path": "p", "checkpointLocation": "c", "queryName": "q", "serialization.format": "1"}
    parse(ReadMode.STREAM, **of_spark)
    parse(ReadMode.BATCH, **of_spark)
    parse_sink_options({**SERVERS, **of_spark})
    parse(ReadMode.BATCH, **{"kafka.metric.reporters": "x.Y"})


def test_an_option_of_another_kind_of_query_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    parse(ReadMode.BATCH, maxOffsetsPerTrigger="7")
    assert [r.getMessage() for r in caplog.records] == [
        "the option maxOffsetsPerTrigger has no effect here: it is for stream"
    ]


def test_delivery_defaults_to_exactly_once_in_streams_only() -> None:
    assert parse_sink_options(SERVERS, ReadMode.BATCH).exactly_once is None
    assert parse_sink_options(SERVERS, ReadMode.STREAM).exactly_once == ExactlyOnce()
    assert parse_sink_options({**SERVERS, "delivery": "at-least-once"}, ReadMode.STREAM).exactly_once is None
    given = {
        **SERVERS,
        "delivery": "exactly-once",
        "deliveryLedger": "mine",
        "transactionalIdPrefix": "p",
        "checkpointLocation": "/c",
        "failOnDataLoss": "false",
        "kafka.transaction.two.phase.commit.enable": "true",
    }
    parsed = parse_sink_options(given, ReadMode.BATCH)
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
        parse_sink_options({**SERVERS, **wrong}, ReadMode.STREAM)
    assert says in str(refused.value)
