"""Shell: one broker's side of a scenario. Sends requests, and writes the answers down in a form that two brokers share.

What is a broker's own (ids, addresses, the time) is replaced by a word; what is left must be the same.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from barnabas.core.errors import ErrorCode
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.wire.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.wire.schema import MessageStruct, Request
from tests.system.broker.wire_client import WireClient

CLOSED = "the connection was closed"
SILENCE = "no answer came"
Answer = Any
"""A response as plain data: dicts, lists, texts, numbers."""

_OWN = frozenset({"throttle_time_ms", "host", "port", "cluster_id", "documentation", "node_endpoints"})
"""Fields never compared: addresses, throttling, and documentation, which is ours by intent."""
_PATIENCE_S = 30.0
_ANSWER_S = 10.0
_TRANSIENT = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)


class Talk:
    """Connections to one broker, the names this run uses there, and everything that was answered."""

    def __init__(self, address: str, run: str) -> None:
        self.address = address
        self.answers: list[tuple[str, Answer]] = []
        self._run = run
        self._client: WireClient | None = None
        self._words: dict[object, str] = {}

    # ---- names

    def name(self, short: str) -> str:
        """A name nobody used before on this broker; shown as `short` in what is compared."""
        return f"{short}.{self._run}"

    def call_it(self, value: object, word: str) -> None:
        """This value (a member id, a producer id, a session id) is shown as `word`."""
        if value not in ("", -1, None):
            self._words[value] = f"<{word}>"

    def forget(self, word: str) -> None:
        """Values called this are nobody's any more."""
        self._words = {value: known for value, known in self._words.items() if known != f"<{word}>"}

    # ---- requests

    def ask(self, label: str, request: Request, version: int) -> Any:
        """Send, write the answer down under `label`, give the response (None when the broker hung up)."""
        response = self.quietly(request, version)
        self.note(f"{label} [v{version}]", CLOSED if response is None else self.plain(response))
        return response

    def each(self, label: str, request: Request, versions: Sequence[int]) -> None:
        for version in versions:
            self.ask(label, request, version)

    def quietly(self, request: Request, version: int) -> Any:
        """The response, without writing it down; None when the broker hung up, SILENCE when it did nothing."""
        client = self._client or self.connect()
        try:
            return client.call(request, version)
        except (ConnectionError, TimeoutError) as error:
            self.hang_up()
            return SILENCE if isinstance(error, TimeoutError) else None

    def raw(self, label: str, data: bytes, *, length: bool = True) -> None:
        """Bytes as they are on a connection of their own; writes down what came back."""
        with WireClient(self.address, timeout_s=_ANSWER_S) as client:
            client.raw(len(data).to_bytes(4, "big") + data if length else data)
            self.note(label, _first_frame(client))

    def connect(self, client_id: str | None = "wire-client", host: str = "") -> WireClient:
        """A new connection, which the next requests use."""
        self.hang_up()
        self._client = WireClient(self.address, timeout_s=_ANSWER_S, client_id=client_id, host=host)
        return self._client

    def hang_up(self) -> None:
        if self._client is not None:
            self._client.socket.close()
        self._client = None

    def note(self, label: str, answer: Answer) -> None:
        self.answers.append((label, answer))

    # ---- what many scenarios need first

    def topic(self, short: str, partitions: int = 1, **configs: str) -> str:
        """Create a topic (config names with _ for .) and wait until its leaders answer."""
        name = self.name(short)
        wanted = {"retention_ms": "-1", **configs}  # the scenarios' records are years old
        settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in wanted.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
        made = self.quietly(CreateTopicsRequest(topics=[topic]), 7).topics[0]
        assert made.error_code == 0, made
        self.call_it(made.topic_id, f"id of {short}")
        self.wait_led(name, partitions)
        return name

    def topic_id(self, name: str) -> UUID:
        found = self.quietly(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics[0]
        topic_id: UUID = found.topic_id
        self.call_it(topic_id, f"id of {name.partition('.')[0]}")
        return topic_id

    def wait_led(self, name: str, partitions: int) -> None:
        asked = ListOffsetsTopic(
            name=name, partitions=[ListOffsetsPartition(partition_index=p, timestamp=-1) for p in range(partitions)]
        )
        request = ListOffsetsRequest(replica_id=-1, topics=[asked])
        self.until(lambda: all(p.error_code == 0 for p in self.quietly(request, 5).topics[0].partitions), name)

    def delete(self, name: str) -> None:
        self.quietly(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 5)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        self.until(lambda: self.quietly(request, 9).topics[0].error_code == 3, f"{name} deleted")

    def group(self, short: str) -> str:
        """The name of a group whose coordinator answers."""
        group = self.name(short)
        find = FindCoordinatorRequest(key=group)
        self.until(lambda: self.quietly(find, 3).error_code == 0, "a coordinator")
        fetch = OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name="x", partition_indexes=[0])])
        self.until(lambda: self.quietly(fetch, 5).error_code not in _TRANSIENT, "the coordinator's log")
        return group

    def transactions(self) -> None:
        """Wait until there is a coordinator of transactions, and so its topic."""
        find = FindCoordinatorRequest(key=self.name("t"), key_type=1)
        self.until(lambda: self.quietly(find, 3).error_code == 0, "a transaction coordinator")

    def fill(self, topic: str, *batches: bytes, partition: int = 0) -> None:
        """Append batches, one request each."""
        for batch in batches:
            response = self.quietly(produce(topic, batch, partition=partition), 7)
            assert response.responses[0].partition_responses[0].error_code == 0, response

    def until(self, met: Callable[[], bool], what: str) -> None:
        """Waits until `met()` is true. Brokers apply metadata with a delay, and do not notify clients."""
        deadline = time.monotonic() + _PATIENCE_S
        while not met():
            assert time.monotonic() < deadline, f"{self.address}: {what} did not come within {_PATIENCE_S} s"
            time.sleep(0.02)  # between two requests to another process, which cannot notify this one

    # ---- to plain data

    def plain(self, value: object) -> Answer:
        """Fields by name, what belongs to one broker replaced, lists in an order of their own."""
        if isinstance(value, MessageStruct):
            fields = (field.name for field in value.__schema__.fields)
            return {name: self._field(name, getattr(value, name)) for name in fields if name not in _OWN}
        if isinstance(value, list):
            return sorted((self.plain(item) for item in value), key=repr)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._text(bytes(value).hex())
        if isinstance(value, str):
            return self._text(self._words.get(value, value))
        if isinstance(value, UUID):
            return "0" if value.int == 0 else self._words.get(value, "<some id>")
        return value

    def _field(self, name: str, value: object) -> Answer:
        if name in ("producer_id", "session_id") and value in self._words:
            return self._words[value]
        return self.plain(value)

    def _text(self, text: str) -> str:
        for value, word in self._words.items():
            if isinstance(value, (str, UUID)) and str(value) in text:
                text = text.replace(str(value), word)
        return re.sub(rf"\.{self._run}", "", text).replace(f".{self._run}".encode().hex(), "")


def produce(
    topic: str | UUID,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    data = TopicProduceData(
        name="" if isinstance(topic, UUID) else topic,
        topic_id=topic if isinstance(topic, UUID) else UUID(int=0),
        partition_data=[PartitionProduceData(index=partition, records=records)],
    )
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data], transactional_id=transactional_id)


def batch(*values: str, key: str | None = "k", at: int | None = None, **options: Any) -> bytes:
    """A record batch of these values."""
    now = int(time.time() * 1000) if at is None else at
    keys = None if key is None else key.encode()
    return build_batch([SimpleRecord(keys, value.encode(), now + i) for i, value in enumerate(values)], **options)


def _first_frame(client: WireClient) -> str:
    """The first answer without its correlation id, or that there was none."""
    data = b""
    try:
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            chunk = client.socket.recv(1 << 16)
            if not chunk:
                return CLOSED
            data += chunk
    except ConnectionError:
        return CLOSED
    return data[8 : 4 + int.from_bytes(data[:4], "big")].hex()
