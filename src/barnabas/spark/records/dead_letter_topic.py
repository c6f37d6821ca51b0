"""Shell: runs on the driver: creates the dead-letter topic."""

from __future__ import annotations

from barnabas.client.admin import AsyncAdmin
from barnabas.client.values import NewTopic
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.spark.connection import LogClient
from barnabas.spark.errors import OptionError
from barnabas.spark.records.formats import RecordFormats


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
