"""What a topic takes in, what it refuses and with which code, and what it stores (Kafka's LogValidatorTest)."""

from __future__ import annotations

import contextlib

import pytest
from msgspec.structs import replace
from record_crafting import MALFORMED, SOME, batch, damaged, record

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    Record,
    TimestampType,
    check_crc,
    iter_batches,
    iter_records,
    read_header,
)
from barnabas.protocol.records.build import SimpleRecord, build_batch, varint
from barnabas.protocol.records.compression import CompressionType, compress
from barnabas.protocol.records.control import EndTxn, build_end_txn_marker
from barnabas.protocol.records.errors import CorruptBatchError, RecordSizeError, RecordValidationError
from barnabas.protocol.records.scan import Scan, find_timestamp, scan_records
from barnabas.protocol.records.validate import (
    RECORD_ERRORS_MAX,
    Origin,
    RecordCheck,
    Validated,
    ValidationRules,
    check,
    validate_and_assign,
    validate_replicated,
)

RULES = ValidationRules("orders")
NOW = 1_000_000


def accept(data: bytes, rules: ValidationRules = RULES) -> Validated:
    """The result in one step, which is the same in two steps."""
    found = validate_and_assign(data, rules, first_offset=500, leader_epoch=7, now_ms=NOW)
    if rules.origin is Origin.CLIENT:
        assert in_two_steps(data, rules) == found
    return found


def in_two_steps(data: bytes, rules: ValidationRules) -> Validated:
    checked = check(data, rules, NOW)
    return validate_and_assign(data, rules, first_offset=500, leader_epoch=7, now_ms=NOW, checked=checked)


def refuse(data: bytes, rules: ValidationRules = RULES) -> RecordValidationError:
    """The error in one step, which is the same in two steps."""
    with pytest.raises(RecordValidationError) as caught:
        accept(data, rules)
    with pytest.raises(RecordValidationError) as again:
        in_two_steps(data, rules)
    assert (again.value.code, str(again.value)) == (caught.value.code, str(caught.value))
    assert again.value.record_errors == caught.value.record_errors
    assert "orders" in str(caught.value)
    return caught.value


def stored(validated: Validated) -> list[Record]:
    """The records as a consumer will see them, after checking that headers and bytes agree."""
    data = b"".join(validated.parts)
    found = list(iter_batches(data))
    assert [header for _, header in found] == validated.batches
    assert len(data) == validated.size
    records = []
    for pos, header in found:
        check_crc(data, pos, header)
        assert header.partition_leader_epoch == 7
        records += iter_records(data, pos, header)
    return records


def times(*timestamps: int) -> list[SimpleRecord]:
    return [SimpleRecord(b"k", b"v", t) for t in timestamps]


def test_offsets_and_epoch_are_assigned_without_touching_the_records() -> None:
    data = build_batch(SOME, producer_id=1, producer_epoch=0, base_sequence=0)
    validated = accept(data)
    assert (validated.first_offset, validated.last_offset, validated.log_append_time_ms) == (500, 504, -1)
    assert (validated.max_timestamp, validated.offset_of_max_timestamp) == (1004, 504)
    head, rest = validated.parts
    assert len(head) == 16
    assert isinstance(rest, memoryview) and rest.obj is data
    assert stored(validated) == [Record(500 + i, r.timestamp, r.key, r.value) for i, r in enumerate(SOME)]
    assert validated.batches[0].crc == read_header(data).crc


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize("check", list(RecordCheck))
def test_every_codec_passes_in_place(codec: CompressionType, check: RecordCheck) -> None:
    data = build_batch([*SOME, SimpleRecord(None, None, 1005, (("h", None),))], codec=codec)
    validated = accept(data, replace(RULES, record_check=check))
    assert len(validated.parts[0]) == 16
    assert len(stored(validated)) == 6
    assert validated.batches[0].codec is codec


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize("name", list(MALFORMED))
def test_malformed_records_are_refused_by_the_full_check(name: str, codec: CompressionType) -> None:
    payload, count = MALFORMED[name]
    error = refuse(batch(payload, count, codec), replace(RULES, record_check=RecordCheck.FULL))
    assert error.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("name", list(MALFORMED))
def test_malformed_records_at_either_end_are_refused_by_default(name: str) -> None:
    payload, count = MALFORMED[name]
    assert refuse(batch(payload, count)).code is ErrorCode.INVALID_RECORD


def test_the_chain_is_followed_through_the_middle_by_default() -> None:
    payload = record(0) + record(1, length=9) + record(2)
    assert refuse(batch(payload, 3)).code is ErrorCode.INVALID_RECORD


def test_offsets_that_do_not_count_up_from_zero_are_refused() -> None:
    full = replace(RULES, record_check=RecordCheck.FULL)
    assert refuse(batch(record(0) + record(2) + record(2), 3), full).code is ErrorCode.INVALID_RECORD
    assert refuse(batch(record(0) + record(1) + record(1), 3)).code is ErrorCode.INVALID_RECORD
    assert refuse(batch(record(1) + record(2), 2)).code is ErrorCode.INVALID_RECORD


def test_long_offset_deltas_in_the_full_check() -> None:
    records = [SimpleRecord(None, b"", 1000) for _ in range(20_000)]
    full = replace(RULES, record_check=RecordCheck.FULL)
    assert accept(build_batch(records), full).last_offset == 20_499
    # 80 80 01 is 8192, also when its first two bytes alone would look like it
    lie = b"".join(record(i, key=None, value=b"") for i in range(8192)) + record(8191, key=b"", value=None)
    assert refuse(batch(lie, 8193), full).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("magic", "code"),
    [
        (0, ErrorCode.INVALID_RECORD),
        (1, ErrorCode.INVALID_RECORD),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (255, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_other_magics(magic: int, code: ErrorCode) -> None:
    """Formats of the past are refused for good; one that never was is damage, and worth another try."""
    data = bytearray(build_batch(SOME))
    data[16] = magic
    with pytest.raises(KafkaError) as caught:
        accept(bytes(data))
    assert caught.value.code is code


def test_a_wrong_crc_is_corruption() -> None:
    data = bytearray(build_batch(SOME))
    data[-1] ^= 1
    with pytest.raises(CorruptBatchError) as caught:
        accept(bytes(data))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_cut_short_is_no_batch() -> None:
    """Not CORRUPT_MESSAGE, which producers answer by sending the same again."""
    data = build_batch(SOME)
    for cut in (1, 16, 17, 60, 61, len(data) - 1):
        assert refuse(data[:cut]).code is ErrorCode.INVALID_RECORD


def test_clients_send_one_batch() -> None:
    data = build_batch(SOME)
    assert refuse(data + data).code is ErrorCode.INVALID_RECORD
    assert refuse(data + b"x").code is ErrorCode.INVALID_RECORD
    assert refuse(b"").code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "changes",
    [
        {"record_count": 0},
        {"record_count": -1},
        {"record_count": 4},
        {"record_count": 6},
        {"last_offset_delta": -1},
        {"last_offset_delta": 3},
        {"last_offset_delta": 5},
        {"base_offset": 1},
        {"base_offset": -1},
        {"attributes": 0x20},
        {"attributes": 0x30, "producer_id": 1, "producer_epoch": 0},
        {"attributes": 0x10},
        {"attributes": 5},
        {"producer_id": 1, "producer_epoch": 0},
        {"producer_id": 1, "base_sequence": 0},
    ],
    ids=str,
)
def test_headers_that_contradict_themselves(changes: dict[str, int]) -> None:
    """Count, offsets, base offset, control, transaction without producer, producer without sequence or epoch."""
    data = damaged(build_batch(SOME), **changes)
    try:
        assert refuse(data).code is ErrorCode.INVALID_RECORD
    except CorruptBatchError as error:  # pragma: no cover
        pytest.fail(f"should be refused, not called corrupt: {error}")


def test_transactional_and_idempotent_batches_pass() -> None:
    data = build_batch(SOME, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert accept(data).batches[0].is_transactional


def test_coordinators_write_markers_and_several_batches() -> None:
    rules = replace(RULES, origin=Origin.COORDINATOR, compact=True)
    marker = build_end_txn_marker(EndTxn(True, 1), producer_id=1, producer_epoch=0, timestamp=5)
    validated = accept(build_batch(SOME) + marker, rules)
    assert [h.base_offset for h in validated.batches] == [500, 505]
    assert (validated.last_offset, validated.max_timestamp, validated.offset_of_max_timestamp) == (505, 1004, 504)
    assert len(stored(validated)) == 6
    assert refuse(marker).code is ErrorCode.INVALID_RECORD


def test_markers_are_never_compressed_nor_given_append_time() -> None:
    rules = replace(
        RULES,
        origin=Origin.COORDINATOR,
        compression_type=CompressionType.ZSTD,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
    )
    marker = build_end_txn_marker(EndTxn(True, 1), producer_id=1, producer_epoch=0, timestamp=5)
    assert accept(marker, rules).batches[0]._replace(base_offset=0, partition_leader_epoch=-1) == read_header(marker)


def test_too_large() -> None:
    data = build_batch(SOME)
    accept(data, replace(RULES, max_message_bytes=len(data)))
    error = refuse(data, replace(RULES, max_message_bytes=len(data) - 1))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in str(error)


def test_a_length_beyond_the_request_is_no_batch() -> None:
    """Not MESSAGE_TOO_LARGE, which producers answer by splitting the batch."""
    head = bytearray(build_batch(SOME)[:HEADER_SIZE])
    head[8:12] = (2**31 - 1).to_bytes(4, "big")
    assert refuse(bytes(head)).code is ErrorCode.INVALID_RECORD


def test_recompression_may_make_a_batch_too_large() -> None:
    data = build_batch([SimpleRecord(None, bytes(10_000), 1000)], codec=CompressionType.ZSTD)
    rules = replace(RULES, max_message_bytes=5000, compression_type=CompressionType.NONE)
    assert refuse(data, rules).code is ErrorCode.MESSAGE_TOO_LARGE
    accept(data, replace(rules, compression_type=None))


@pytest.mark.parametrize("source", list(CompressionType))
@pytest.mark.parametrize("target", list(CompressionType))
def test_the_topics_codec_wins(source: CompressionType, target: CompressionType) -> None:
    data = build_batch(SOME, codec=source, producer_id=1, producer_epoch=0, base_sequence=3)
    validated = accept(data, replace(RULES, compression_type=target))
    assert validated.batches[0].codec is target
    assert validated.batches[0].base_sequence == 3
    assert [(r.key, r.value, r.timestamp) for r in stored(validated)] == [(r.key, r.value, r.timestamp) for r in SOME]
    assert (len(validated.parts[0]) == 16) == (source is target)


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4])
def test_log_append_time(codec: CompressionType) -> None:
    rules = replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME)
    validated = accept(build_batch(times(5, NOW * 9000), codec=codec), rules)
    assert (validated.log_append_time_ms, validated.max_timestamp) == (NOW, NOW)
    assert validated.batches[0].timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [r.timestamp for r in stored(validated)] == [NOW, NOW]


@pytest.mark.parametrize("kind", list(TimestampType))
def test_producers_may_not_claim_log_append_time(kind: TimestampType) -> None:
    data = build_batch(SOME, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=1)
    assert refuse(data, replace(RULES, timestamp_type=kind)).code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
def test_timestamps_in_the_future_are_refused_one_by_one(codec: CompressionType) -> None:
    rules = replace(RULES, timestamp_after_max_ms=100)
    accept(build_batch(times(NOW, NOW + 100), codec=codec), rules)
    error = refuse(build_batch(times(NOW, NOW + 101, NOW, NOW + 5000), codec=codec), rules)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [1, 3]


def test_timestamps_in_the_past_are_refused_one_by_one() -> None:
    rules = replace(RULES, timestamp_before_max_ms=100)
    accept(build_batch(times(NOW - 100, NOW)), rules)
    accept(build_batch(times(-1, NOW)), rules)  # "no timestamp" is not an old one
    error = refuse(build_batch(times(NOW, NOW - 101, NOW)), rules)
    assert (error.code, [index for index, _ in error.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [1])


def test_bounds_do_not_apply_under_log_append_time() -> None:
    rules = replace(
        RULES, timestamp_before_max_ms=1, timestamp_after_max_ms=1, timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    assert accept(build_batch(times(0, NOW * 2)), rules).log_append_time_ms == NOW


@pytest.mark.parametrize("claimed", [0, 1001, 5000, 2**62])
def test_a_lying_max_timestamp_is_put_right(claimed: int) -> None:
    data = damaged(build_batch(times(1000, 3000, 2000)), max_timestamp=claimed)
    validated = accept(data)
    assert validated.max_timestamp == validated.batches[0].max_timestamp == 3000
    assert len(stored(validated)) == 3


def test_a_max_timestamp_in_the_middle_is_found() -> None:
    data = build_batch(times(1000, 3000, 2000))
    validated = accept(data)
    assert (validated.max_timestamp, len(validated.parts[0])) == (3000, 16)


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.SNAPPY])
def test_compacted_topics_need_keys(codec: CompressionType) -> None:
    rules = replace(RULES, compact=True)
    accept(build_batch([SimpleRecord(b"", b"v", 1), SimpleRecord(b"k", None, 1)], codec=codec), rules)
    keyless = [
        SimpleRecord(b"k", b"v", 1),
        SimpleRecord(None, b"v", 1),
        SimpleRecord(b"k", b"v", 1),
        SimpleRecord(None, None, 1),
    ]
    error = refuse(build_batch(keyless, codec=codec), rules)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors] == [1, 3]


def test_both_faults_answer_with_the_timestamp_code() -> None:
    rules = replace(RULES, compact=True, timestamp_after_max_ms=0)
    error = refuse(build_batch([SimpleRecord(None, b"v", 1), SimpleRecord(b"k", b"v", NOW + 1)]), rules)
    assert (error.code, [i for i, _ in error.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [0, 1])


@pytest.mark.parametrize(
    "codec", [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]
)
def test_bombs_are_refused_as_too_large(codec: CompressionType) -> None:
    """Not retriable, and the one answer that makes Kafka's own producer split an honest batch."""
    data = build_batch([SimpleRecord(None, bytes(4_000_000), 1)], codec=codec)
    assert refuse(data, replace(RULES, decompressed_bytes_max=1_000_000)).code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CompressionType)
def test_records_above_max_decompressed_message_bytes_are_refused_if_they_are_compressed(
    codec: CompressionType,
) -> None:
    """As in Apache Kafka, also in a search by timestamp, and not if the batch is not compressed."""
    data = build_batch([SimpleRecord(None, b"v", NOW), SimpleRecord(None, bytes(4_000), NOW + 1)], codec=codec)
    limit = len(record(1, 1, None, bytes(4_000))) - 2  # without the length of the record, a varint of two bytes
    for most, is_refused in ((limit, False), (limit - 1, codec is not CompressionType.NONE)):
        rules = replace(RULES, max_decompressed_message_bytes=most)
        header = read_header(data)
        if is_refused:
            error = refuse(data, rules)
            assert error.code is ErrorCode.INVALID_RECORD
            assert f"inflates to {limit} bytes, more than max.decompressed.message.bytes={limit - 1}" in str(error)
            with pytest.raises(RecordSizeError):
                find_timestamp(data, header, NOW + 1, 0, most)
            with pytest.raises(RecordSizeError):
                list(iter_records(data, 0, header, max_decompressed_message_bytes=most))
        else:
            check(data, rules, NOW)
            assert find_timestamp(data, header, NOW + 1, 0, most) == (NOW + 1, 1)
            assert len(list(iter_records(data, 0, header, max_decompressed_message_bytes=most))) == 2


@pytest.mark.parametrize(
    "codec", [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]
)
def test_payloads_that_are_not_what_the_codec_says(codec: CompressionType) -> None:
    header = read_header(build_batch(SOME))
    data = damaged(build_batch(SOME), attributes=header.attributes | codec)
    assert refuse(data).code is ErrorCode.INVALID_RECORD
    short = compress(codec, b"".join(record(i) for i in range(5)))[:-9]
    assert refuse(damaged(build_batch(SOME)[:61] + short, attributes=int(codec))).code is ErrorCode.INVALID_RECORD


def test_headers_are_checked_at_either_end() -> None:
    tail = varint(1) + varint(1) + b"a" + varint(1) + b"b"
    accept(batch(record(0, tail=tail) + record(1, tail=tail), 2))
    bad = varint(2) + varint(1) + b"a" + varint(1) + b"b"
    assert refuse(batch(record(0) + record(1, tail=bad), 2)).code is ErrorCode.INVALID_RECORD


def test_followers_keep_what_the_leader_decided() -> None:
    one = build_batch(SOME, base_offset=10, leader_epoch=3)
    two = build_batch(SOME, base_offset=20, leader_epoch=4)  # a gap: compaction took the offsets between
    validated = validate_replicated(one + two + two[:40], expected_offset=10)
    assert b"".join(validated.parts) == one + two
    assert [(h.base_offset, h.partition_leader_epoch) for h in validated.batches] == [(10, 3), (20, 4)]
    assert (validated.first_offset, validated.last_offset, validated.max_timestamp) == (10, 24, 1004)
    assert validate_replicated(b"", expected_offset=5).last_offset == 4


def test_followers_refuse_steps_back_and_damage() -> None:
    one = build_batch(SOME, base_offset=10)
    with pytest.raises(CorruptBatchError, match="before the expected"):
        validate_replicated(one, expected_offset=11)
    with pytest.raises(CorruptBatchError, match="before the expected"):
        validate_replicated(one + one, expected_offset=10)
    with pytest.raises(CorruptBatchError, match="CRC"):
        validate_replicated(one[:-1] + b"\xff")


def test_a_check_under_other_rules_is_not_used() -> None:
    """The topic becomes compacted while a batch without keys is checked."""
    data = build_batch([SimpleRecord(None, b"v", NOW)])
    checked = check(data, RULES, NOW)
    with pytest.raises(RecordValidationError):
        validate_and_assign(
            data, replace(RULES, compact=True), first_offset=0, leader_epoch=0, now_ms=NOW, checked=checked
        )


def test_an_error_names_a_limited_number_of_records() -> None:
    count = RECORD_ERRORS_MAX + 5
    error = refuse(build_batch([SimpleRecord(None, b"v", NOW)] * count), replace(RULES, compact=True))
    assert [index for index, _ in error.record_errors] == list(range(RECORD_ERRORS_MAX))
    assert f"refuses {count} records" in str(error)


@pytest.mark.parametrize("delta", [0, 1 << 13, -(1 << 20), 1 << 27, -(1 << 27) - 1, 1 << 40])
@pytest.mark.parametrize("count", [2, 8193, (1 << 20) + 1], ids=["few", "many", "a million"])
def test_the_full_check_decodes_deltas_of_every_length(delta: int, count: int) -> None:
    """Offset deltas of one to four bytes; timestamp deltas of one to six bytes."""
    last = b"".join(record(index, delta, key=None) for index in (count - 2, count - 1))
    rows = b"".join(record(index, key=None, value=None) for index in range(count - 2)) + last
    deltas = (delta, 0) if count > 2 else (delta,)
    assert scan_records(rows, count, 10) == Scan(10 + min(deltas), 10 + max(deltas), count)
    if count < 10_000:
        repeated = rows + record(count - 1, key=None)
        with pytest.raises(CorruptBatchError, match="offset delta"):
            scan_records(repeated, count + 1, 10)


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.ZSTD])
@pytest.mark.parametrize("kind", list(TimestampType))
def test_a_timestamp_is_found_where_a_full_decoding_finds_it(codec: CompressionType, kind: TimestampType) -> None:
    deltas = [0, 5, -3, 70, 8191, -8192, 1_048_575, -1_048_576, 1 << 28, -(1 << 40), 1 << 40, 63, 64]
    records = [SimpleRecord(b"k" * index, None, NOW + delta) for index, delta in enumerate(deltas)]
    data = build_batch(records, base_offset=100, codec=codec, timestamp_type=kind, log_append_time_ms=NOW)
    header = read_header(data)
    decoded = list(iter_records(data, 0, header))
    for delta in [*deltas, (1 << 40) + 1]:
        for least in (0, 100, 104, 112, 113):
            wanted = [(r.timestamp, r.offset) for r in decoded if r.timestamp >= NOW + delta and r.offset >= least]
            assert find_timestamp(data, header, NOW + delta, least) == (wanted[0] if wanted else None)


def test_the_search_for_a_timestamp_stays_within_the_batch() -> None:
    for name, (payload, count) in MALFORMED.items():
        data = batch(payload, count)
        with contextlib.suppress(CorruptBatchError):
            found = find_timestamp(data, read_header(data), NOW * 2, 0)
            assert found is None, name
