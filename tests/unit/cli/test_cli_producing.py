"""What `barnabas produce` says of the records that it has written."""

from barnabas.cli.records.producing import WrittenLines
from barnabas.client.values import RecordMetadata


def test_written_has_the_first_and_the_last_offset_of_each_partition() -> None:
    written = WrittenLines()
    for partition, offset in ((0, 7), (1, 3), (0, 6), (0, 8), (2, -1)):  # -1: with acks=0 the offset is unknown
        written.add(RecordMetadata(topic="flights", partition=partition, offset=offset, timestamp=0))
    assert written.offsets == {0: (6, 8), 1: (3, 3)}
