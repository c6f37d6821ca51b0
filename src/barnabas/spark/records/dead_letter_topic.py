"""Shell: creates the dead-letter topic, on the driver, and counts the bad records in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from barnabas.client.admin import AsyncAdmin
from barnabas.client.partition_reader import OffsetRange
from barnabas.client.values import NewTopic
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.spark.connection import LogClient, connect
from barnabas.spark.errors import OptionError
from barnabas.spark.given_options import GivenOptions
from barnabas.spark.options import POLL_TIMEOUT_MS
from barnabas.spark.records.dead_letters import count_letters
from barnabas.spark.records.formats import RecordFormats
from barnabas.spark.source.positions import SourceSubscription


def prepare_dead_letters(client: LogClient, formats: RecordFormats, topics: set[str]) -> None:
    """Create the dead-letter topic, with one partition as Connect does, if it does not exist. Raises OptionError if the
    query reads that topic itself, and KafkaError.
    """
    options = formats.dead_letters
    if options is None:
        return
    if options.topic in topics:
        raise OptionError(
            f"errors.deadletterqueue.topic.name is {options.topic}, which the query reads: name another topic"
        )
    new = NewTopic(options.topic, 1, options.replication_factor)
    for result in client.run(AsyncAdmin(cluster=client.cluster).create_topics([new])).values():
        if isinstance(result, KafkaError) and result.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise result


def read_letter_counts(options: Mapping[str, str], topic: str) -> dict[TopicPartition, int]:
    """The number of bad records of each partition of the source, from the context headers in a dead-letter topic.
    `options` are those of the query (`kafka.bootstrap.servers`, ...). Raises OptionError and KafkaError.
    """
    client = connect(GivenOptions(options).client_settings())
    return count_letters(_headers(client, topic))


def _headers(client: LogClient, topic: str) -> Iterator[list[tuple[str, bytes | None]]]:
    from barnabas.protocol.records.columnar import DecodeOptions, iter_arrow
    from barnabas.protocol.records.columnar.segments import Selection

    log = client.log_view(client.partitions(SourceSubscription(topics=(topic,))))
    for tp, end in log.latest.items():
        start = log.earliest[tp]
        if start == end:
            continue
        for batches in client.fetch(OffsetRange(tp, start, end), stall_timeout_ms=POLL_TIMEOUT_MS):
            wanted = DecodeOptions(tp.topic, tp.partition, ("headers",), Selection(start, end, batches.aborted))
            for batch in iter_arrow([batches.buffer], wanted):
                for headers in batch.column("headers").to_pylist():
                    yield [(header["key"], header["value"]) for header in headers or ()]
