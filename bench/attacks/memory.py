"""Table: attacks on the memory of a broker: what is refused, what nobody receives, and what is invented.

`bench/bystander.py` prints the peak of the broker's memory, and has its bound.
"""

from __future__ import annotations

import time
from uuid import UUID

from tests.system.broker.wire_client import WireClient

from barnabas.core.errors import ErrorCode
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.compression import CompressionType, compress
from barnabas.protocol.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.wire.messages.push_telemetry import PushTelemetryRequest
from bench.attacks.largest import World, with_transactions
from bench.attacks.records import MB, TOPIC, create, produce, send
from bench.attacks.registry import Steps, attack

_ANSWER_S = 600.0
_BOMBS = 90
_UNREAD = 400
_WIDE = 10_000
_INVENTED = 200


@attack("refused-bombs", f"{_BOMBS} zstd batches of 10 KB, which inflate to 70 MB each and are refused")
def refused_bombs(address: str) -> Steps:
    batch = build_batch([SimpleRecord(None, bytes(70 * MB), int(time.time() * 1000))], codec=CompressionType.ZSTD)
    with WireClient(address, timeout_s=_ANSWER_S) as client:
        create(client, 1)
        yield
        for _ in range(_BOMBS - 1):
            send(client, produce([batch]))
        return send(client, produce([batch]))


@attack("refused-wide", "one request with 90 such batches")
def refused_wide(address: str) -> Steps:
    batch = build_batch([SimpleRecord(None, bytes(70 * MB), int(time.time() * 1000))], codec=CompressionType.ZSTD)
    with WireClient(address, timeout_s=_ANSWER_S) as client:
        create(client, _BOMBS)
        yield
        return send(client, produce([batch] * _BOMBS))


@attack("recompressed-waits", "a transaction of 300 batches of 1 MB, which a topic stores without compression")
def recompressed_waits(address: str) -> Steps:
    with WireClient(address, timeout_s=_ANSWER_S) as client:
        create(client, 300, compression_type="uncompressed", max_message_bytes=str(2 * MB))
        with_transactions(World(client), count=1)
        init = client.call(InitProducerIdRequest(transactional_id="x0", transaction_timeout_ms=60_000), 4)
        assert init.error_code == ErrorCode.NONE, init
        batch = build_batch(
            [SimpleRecord(None, bytes(1_000_000), int(time.time() * 1000))],
            codec=CompressionType.ZSTD,
            producer_id=init.producer_id,
            producer_epoch=init.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        data = [PartitionProduceData(index=index, records=batch) for index in range(300)]
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            transactional_id="x0",
            topic_data=[TopicProduceData(name=TOPIC, partition_data=data)],
        )
        yield
        return send(client, request)


@attack("unread-responses", f"{_UNREAD} connections that ask for metadata of {_WIDE} partitions, and read nothing")
def unread_responses(address: str) -> Steps:
    with WireClient(address, timeout_s=_ANSWER_S) as first:
        create(first, _WIDE)
        clients = [WireClient(address, timeout_s=_ANSWER_S) for _ in range(_UNREAD)]
        request = MetadataRequest(topics=None)
        _, frame = clients[0].frame(request, 9)  # which never reads an answer
        yield
        closed = 0
        for _ in range(4):
            for client in clients:
                try:
                    client.raw(frame)
                except OSError:
                    closed += 1
            first.call(MetadataRequest(topics=[]), 9)
        for client in clients:
            client.socket.close()
        return f"{closed} requests met a closed connection"


@attack("invented-metrics", f"{_INVENTED} invented instances that push 2,000 values each")
def invented_metrics(address: str) -> Steps:
    metric = b"\n\x09" + b"x" * 9 + b"\x2a\x0b\n\x09" + b"\x21" + bytes(8)
    scope = b"".join(b"\x12" + bytes([len(metric)]) + metric for _ in range(2_000))
    body = compress(CompressionType.ZSTD, scope)
    with WireClient(address, timeout_s=_ANSWER_S) as client:
        yield
        codes: dict[str, int] = {}
        for number in range(1, _INVENTED + 1):
            asked = client.call(GetTelemetrySubscriptionsRequest(client_instance_id=UUID(int=number)), 0)
            push = PushTelemetryRequest(
                client_instance_id=UUID(int=number),
                subscription_id=asked.subscription_id,
                compression_type=CompressionType.ZSTD,
                metrics=body,
            )
            code = ErrorCode(client.call(push, 0).error_code).name
            codes[code] = codes.get(code, 0) + 1
        return ", ".join(f"{count} {code}" for code, count in codes.items())
