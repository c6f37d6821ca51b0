"""Which batches the loop checks itself, the budget of a request, and the process that checks large batches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import BatchHeader, read_header
from barnabas.protocol.records.build import SimpleRecord, build_batch, seal
from barnabas.protocol.records.compression import CompressionType, compress
from barnabas.protocol.records.errors import InflationError, RecordSizeError, RecordValidationError
from barnabas.protocol.records.scan import find_timestamp
from barnabas.protocol.records.validate import Checked, ValidationRules, check
from barnabas.server.broker.checking import checker
from barnabas.server.broker.checking.checker import BatchChecker, Outcome, ProducedBatch, RequestChecks, light_cost
from barnabas.server.broker.checking.process import CheckProcess

RULES = ValidationRules("orders")
COMPACTED = ValidationRules("orders", compact=True)
LARGE = ValidationRules("orders", max_message_bytes=1 << 30)
ZSTD = ValidationRules("orders", compression_type=CompressionType.ZSTD)
NOW = 1_000_000


def batch(count: int, codec: CompressionType = CompressionType.NONE, value: bytes = b"v") -> bytes:
    return build_batch([SimpleRecord(b"k%d" % index, value, NOW + index % 7) for index in range(count)], codec=codec)


def declaring(count: int) -> bytes:
    """A batch whose header declares `count` records, which are not there."""
    header = BatchHeader(0, 0, -1, 2, 0, 0, count - 1, NOW, NOW, -1, -1, -1, count)
    return seal(header, bytes(100))


def checks(*batches: ProducedBatch) -> RequestChecks:
    return RequestChecks(dict(enumerate(batches)), NOW)


def try_inline(request: RequestChecks) -> None:
    async def in_a_loop() -> None:
        request.try_inline(BatchChecker(None))

    asyncio.run(in_a_loop())


def finish(request: RequestChecks, count: int, off_loop: BatchChecker) -> list[Outcome]:
    async def one_after_the_other() -> list[Outcome]:
        return [await request.finish(place, off_loop) for place in range(count)]

    return asyncio.run(one_after_the_other())


class Recorded:
    """Stands for the process: checks in the calling thread, and keeps the limits that it was given."""

    def __init__(self) -> None:
        self.limits: list[int] = []

    def check(self, buf: Buffer, rules: ValidationRules, now_ms: int, limit_bytes: int) -> Checked:
        self.limits.append(limit_bytes)
        return check(buf, rules, now_ms, limit_bytes)

    def find_timestamp(self, buf: Buffer, header: BatchHeader, timestamp: int, least_offset: int, most: int) -> None:
        raise AssertionError("not called")

    def stop(self) -> None:
        pass


def test_small_batches_without_compression_are_light() -> None:
    assert light_cost([batch(100)] * 10) == 1000
    assert light_cost([batch(100, CompressionType.ZSTD)]) is None
    assert light_cost([batch(100)] * 101) is None
    assert light_cost([batch(1, value=bytes(300_000))]) is None
    assert light_cost([b"no batch", declaring(-5)]) == 0


@pytest.mark.parametrize(
    ("left", "batches"),
    {
        "compressed": (0, [ProducedBatch(batch(100, CompressionType.GZIP), RULES)] * 3),
        "large, stored as it is": (
            0,
            [ProducedBatch(batch(1, value=bytes(2_000_000)), LARGE)],
        ),
        "many records": (1, [ProducedBatch(batch(10_001), RULES)]),
        "many records in several batches": (4, [ProducedBatch(batch(2_600), RULES)] * 4),
        "many compressed bytes": (1, [ProducedBatch(declaring(1)[:22] + b"\x04" + bytes(300_000), RULES)]),
        "to be compressed": (
            1,
            [ProducedBatch(batch(1, value=bytes(300_000)), ZSTD)],
        ),
        "inflates far": (1, [ProducedBatch(batch(1, CompressionType.ZSTD, bytes(9_000_000)), RULES)]),
        "inflates far in sum": (1, [ProducedBatch(batch(1, CompressionType.ZSTD, bytes(3_000_000)), RULES)] * 3),
    }.values(),
)
def test_what_the_loop_leaves_to_the_checker(left: int, batches: list[ProducedBatch]) -> None:
    request = checks(*batches)
    try_inline(request)
    assert request.complete is not bool(left)
    assert len(request._left) == left


def test_an_error_found_inline_is_an_outcome() -> None:
    request = checks(ProducedBatch(batch(3, CompressionType.LZ4)[:-1] + b"!", RULES))
    try_inline(request)
    assert request.complete
    assert isinstance(request.outcomes[0], KafkaError)


def test_a_turn_of_the_loop_has_a_budget() -> None:
    """Many requests that each are light may arrive at once, on one connection or on many."""

    async def main() -> None:
        off_loop = BatchChecker(None)
        assert [off_loop.take(cost) for cost in (4_000, 5_000, 1_001, 1_000, 1)] == [True, True, False, True, False]
        third = checks(ProducedBatch(batch(100, CompressionType.LZ4), RULES))
        third.try_inline(off_loop)
        assert not third.complete
        assert isinstance(await third.finish(0, off_loop), Checked)
        await asyncio.sleep(0)
        assert [off_loop.take(30_000) for _ in range(2)] == [True, False]  # the first one always, whatever it costs
        await asyncio.sleep(0)
        assert all(off_loop.take(970) for _ in range(10)), "a stream of 1 MB batches with records of 1 KB"

    asyncio.run(main())


def test_a_request_has_a_budget_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The declared number decides, before anything is inflated. Batches that fit are checked."""
    monkeypatch.setattr(checker, "REQUEST_RECORDS_MAX", 30_000)
    request = checks(
        ProducedBatch(batch(20_000), RULES), ProducedBatch(batch(20_000), RULES), ProducedBatch(batch(5_000), RULES)
    )
    try_inline(request)
    outcomes = finish(request, 3, BatchChecker(None))
    assert [isinstance(outcome, Checked) for outcome in outcomes] == [True, False, False]
    assert all(o.code is ErrorCode.MESSAGE_TOO_LARGE for o in outcomes if isinstance(o, KafkaError))
    assert "30000 records" in str(outcomes[1])


def test_a_count_that_contradicts_the_offsets_is_no_request_of_many_records() -> None:
    """As in Apache Kafka, such a batch is invalid, not too large. The batches behind it keep their budget."""
    lie = bytearray(batch(1))
    lie[57:61] = (1 << 30).to_bytes(4, "big")
    request = checks(ProducedBatch(bytes(lie), RULES), ProducedBatch(batch(11_000), RULES))
    try_inline(request)
    first, second = finish(request, 2, BatchChecker(None))
    assert isinstance(first, KafkaError)
    assert first.code is not ErrorCode.MESSAGE_TOO_LARGE
    assert isinstance(second, Checked)


def test_a_request_has_a_budget_of_inflated_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a batch is what the earlier batches have left, so that no more memory is allocated."""
    monkeypatch.setattr(checker, "REQUEST_INFLATED_BYTES_MAX", 25_000_000)
    monkeypatch.setattr(checker, "PROCESS_RECORDS", 0)
    bomb = ProducedBatch(batch(1, CompressionType.ZSTD, bytes(10_000_000)), RULES)
    plain = ProducedBatch(batch(1), RULES)
    process = Recorded()
    request = checks(bomb, bomb, bomb, plain)
    try_inline(request)
    outcomes = finish(request, 4, BatchChecker(process))
    assert [isinstance(outcome, Checked) for outcome in outcomes] == [True, True, False, True]
    assert isinstance(outcomes[2], KafkaError)
    assert outcomes[2].code is ErrorCode.MESSAGE_TOO_LARGE
    assert [limit // 1_000_000 for limit in process.limits] == [25, 14, 4, 4]


def test_batches_of_many_records_go_to_the_process_one_at_a_time() -> None:
    running = most = 0

    class Slow(Recorded):
        def check(self, buf: Buffer, rules: ValidationRules, now_ms: int, limit_bytes: int) -> Checked:
            nonlocal running, most
            running += 1
            most = max(most, running)
            found = super().check(buf, rules, now_ms, limit_bytes)
            running -= 1
            return found

    process = Slow()
    off_loop = BatchChecker(process)
    many, few = ProducedBatch(batch(50_001), RULES), ProducedBatch(batch(50_000), RULES)

    async def all_at_once() -> list[Checked]:
        return await asyncio.gather(*(off_loop.check(each, NOW) for each in (many, few, many, many)))

    found = asyncio.run(all_at_once())
    assert len(process.limits) == 3
    assert most == 1
    assert [result.max_timestamp for result in found] == [NOW + 6] * 4


@pytest.fixture(scope="module")
def process() -> Iterator[CheckProcess]:
    running = CheckProcess()
    yield running
    running.stop()


def test_the_process_answers_as_the_function_does(process: CheckProcess) -> None:
    for codec in CompressionType:
        for rules in (RULES, COMPACTED, ValidationRules("orders", compression_type=CompressionType.GZIP)):
            data = batch(20_000, codec)
            assert process.check(memoryview(data), rules, NOW, 1 << 26) == check(data, rules, NOW, 1 << 26)


def test_the_process_raises_as_the_function_does(process: CheckProcess) -> None:
    keyless = build_batch([SimpleRecord(None, b"v", NOW)] * 3, codec=CompressionType.ZSTD)
    with pytest.raises(RecordValidationError) as caught:
        process.check(keyless, COMPACTED, NOW, 1 << 26)
    assert len(caught.value.record_errors) == 3
    with pytest.raises(InflationError):
        process.check(batch(1, CompressionType.ZSTD, bytes(1_000_000)), RULES, NOW, 100_000)


def test_the_process_searches_a_batch(process: CheckProcess) -> None:
    data = batch(100, CompressionType.GZIP)
    for timestamp, least in ((NOW + 3, 0), (NOW, 50), (NOW + 6, 99), (NOW + 7, 0)):
        arguments = (data, read_header(data), timestamp, least, 1_000_000)
        assert process.find_timestamp(*arguments) == find_timestamp(*arguments)
    assert process.find_timestamp(data, read_header(data), NOW + 3, 50, 1_000_000) == (NOW + 3, 52)
    with pytest.raises(RecordSizeError) as caught:
        process.find_timestamp(data, read_header(data), NOW + 3, 50, 5)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_a_process_that_has_ended_is_started_again(process: CheckProcess) -> None:
    data = batch(10, CompressionType.ZSTD)
    process.check(data, RULES, NOW, 1 << 26)
    first = process._process
    assert first is not None
    first.kill()
    assert process.check(data, RULES, NOW, 1 << 26) == check(data, RULES, NOW)
    assert process._process is not first


def test_a_stopped_process_is_a_retriable_error() -> None:
    ending = CheckProcess()
    ending.check(batch(1), RULES, NOW, 1 << 26)
    ending.stop()
    with pytest.raises(KafkaError) as caught:
        ending.check(compress(CompressionType.NONE, batch(1)), RULES, NOW, 1 << 26)
    assert caught.value.retriable


def test_recompressed_records_that_wait_for_their_append_have_a_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "KEPT_BYTES_MAX", 3_500)
    stored = ValidationRules("orders", compression_type=CompressionType.NONE)
    produced = ProducedBatch(batch(1, CompressionType.ZSTD, bytes(1_000)), stored)

    async def run() -> None:
        off_loop = BatchChecker(None)
        first, second = checks(*[produced] * 2), checks(*[produced] * 2)
        for request in (first, second):
            for place in range(2):
                await request.decide(place, off_loop)
        assert (first.complete, second.complete) == (True, False)
        assert list(second.outcomes) == [0]
        assert off_loop.kept_bytes < 3_500
        again = await second.finish(1, off_loop)  # the append checks the batch once more
        assert isinstance(again, Checked)
        assert again == second.outcomes[0]
        first.close(off_loop)
        second.close(off_loop)
        assert off_loop.kept_bytes == 0

    asyncio.run(run())
