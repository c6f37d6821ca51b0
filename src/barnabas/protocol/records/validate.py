"""Machine: checks a produced batch and assigns offsets (Kafka's LogValidator).

Base offset and leader epoch are outside of the CRC: in the common case the result is a new head of 16 bytes and a view
of the rest, and no record is decoded. docs/adr/0002-what-the-broker-checks-in-a-batch.md lists the checks and their
cost.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Final

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode
from barnabas.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_START,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    TimestampType,
    check_crc,
    codec_of,
    iter_batches,
    moved,
    read_header,
    records_payload,
)
from barnabas.protocol.records.compression import (
    DECOMPRESSED_BYTES_MAX,
    DECOMPRESSED_RECORD_BYTES_MAX,
    CompressionType,
    compress,
)
from barnabas.protocol.records.crc import crc32c
from barnabas.protocol.records.errors import (
    CorruptBatchError,
    DecompressionLimitError,
    InflationError,
    RecordValidationError,
)
from barnabas.protocol.records.scan import LONG_MAX, Scan, check_chain, iter_facts, open_record, scan_records

_HEAD: Final = struct.Struct(">qii")
_HEAD_SIZE: Final = 16
_SMALLEST_RECORD: Final = 14
"""The smallest valid batchLength (in formats v0 and v1: message size): LegacyRecord.RECORD_OVERHEAD_V0."""
RECORD_ERRORS_MAX: Final = 1000
"""The largest number of invalid records of a batch that an error response names. A response about a million records
would cost more than the request. The producer fails the whole batch, whichever records are named (KIP-467)."""


class Origin(Enum):
    """The origin of an append (Kafka's AppendOrigin). Batches of clients are checked most."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT_LEADER = "raft leader"


class RecordCheck(Enum):
    """The minimum checks of the records of a batch. Compacted topics, among others, always have all records decoded."""

    CHAIN = "chain"
    """The length prefixes of all records are followed (`check_chain`), and the first and last record are decoded."""
    FULL = "full"
    """Every length in every record is checked (`scan_records`), as Kafka does."""


class ValidationRules(Struct, frozen=True):
    """The configs of a topic that decide which records are valid and how they are stored."""

    topic: str
    compact: bool = False
    max_message_bytes: int = 1_048_588
    compression_type: CompressionType | None = None
    """None stands for `producer`: keep the codec of the batch. CompressionType.NONE stands for `uncompressed`."""
    compression_level: int | None = None
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = LONG_MAX
    timestamp_after_max_ms: int = 3_600_000
    origin: Origin = Origin.CLIENT
    record_check: RecordCheck = RecordCheck.CHAIN
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
    """The limit for the records of one batch."""
    max_decompressed_message_bytes: int = DECOMPRESSED_RECORD_BYTES_MAX
    """The limit for one record of a compressed batch (max.decompressed.message.bytes)."""


class Validated(Struct, frozen=True):
    """Valid batches, ready to append. `parts` are their bytes in order, copied only where necessary."""

    parts: list[Buffer]
    batches: list[BatchHeader]
    """The stored headers, with assigned offsets."""
    first_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    """The last offset of the batch with the max timestamp (Kafka's shallow offset)."""
    size: int
    log_append_time_ms: int
    """`now_ms` under LogAppendTime, otherwise -1: the value for ProduceResponse."""


class Checked(Struct, frozen=True):
    """A batch of a client that `check` has found valid, so that `validate_and_assign` does not read its records."""

    rules: ValidationRules
    max_timestamp: int
    """The largest timestamp of a record."""
    inflated_bytes: int
    """The size of the records without compression."""
    recompressed: bytes | None
    """The records as the topic stores them; None if their bytes do not change."""


def check(buf: Buffer, rules: ValidationRules, now_ms: int, limit_bytes: int | None = None) -> Checked:
    """Do the part of `validate_and_assign` whose duration depends on the records: inflate, check and recompress them.

    A pure function, which any thread or process can run. Raises as `validate_and_assign` does, and InflationError if
    the records inflate beyond `limit_bytes` but not beyond the limit of the rules.
    """
    ((pos, header),) = _split(buf, rules)
    _check_header(header, rules)
    check_crc(buf, pos, header)
    payload, max_timestamp = _check_records(buf, pos, header, rules, now_ms, limit_bytes)
    target = _target(header, rules)
    recompressed = None if target is header.codec else compress(target, payload, rules.compression_level)
    if recompressed is not None:
        _check_size(HEADER_SIZE + len(recompressed), rules)
    return Checked(rules, max_timestamp, len(payload), recompressed)


def validate_and_assign(
    buf: Buffer,
    rules: ValidationRules,
    *,
    first_offset: int,
    leader_epoch: int,
    now_ms: int,
    checked: Checked | None = None,
) -> Validated:
    """Check the batches in `buf`, and assign offsets from `first_offset` on and the leader's epoch.

    Clients may send only one batch; coordinators and the Raft leader may append several at once. `checked` is the
    result of `check` for the only batch of `buf`; it is not used if the rules have changed since.
    Raises RecordValidationError (with the error code and the invalid records) and CorruptBatchError (CORRUPT_MESSAGE).
    """
    positions = _split(buf, rules)
    if checked is not None and (checked.rules != rules or len(positions) != 1):
        checked = None
    parts: list[Buffer] = []
    batches: list[BatchHeader] = []
    offset = first_offset
    size = 0
    max_timestamp, offset_of_max = NO_TIMESTAMP, -1
    for pos, header in positions:
        _check_header(header, rules)
        if checked is None:
            check_crc(buf, pos, header)
        stored = _assign(buf, pos, header, rules, offset, leader_epoch, now_ms, parts, checked)
        batches.append(stored)
        size += LOG_OVERHEAD + stored.batch_length
        offset += stored.last_offset_delta + 1
        if stored.max_timestamp > max_timestamp:
            max_timestamp, offset_of_max = stored.max_timestamp, offset - 1
    by_append_time = rules.timestamp_type is TimestampType.LOG_APPEND_TIME
    return Validated(
        parts,
        batches,
        first_offset,
        offset - 1,
        max_timestamp,
        offset_of_max,
        size,
        now_ms if by_append_time else NO_TIMESTAMP,
    )


def validate_replicated(buf: Buffer, *, expected_offset: int | None = None) -> Validated:
    """Check the structure and CRC of batches that the leader has accepted. Offsets and epochs do not change.

    A partial batch at the end of `buf` is ignored, because a fetch response may end inside a batch. Offsets must
    increase and must not be below `expected_offset`. Gaps are valid, because compaction leaves them.
    Raises CorruptBatchError.
    """
    batches: list[BatchHeader] = []
    end = 0
    next_offset = expected_offset
    max_timestamp, offset_of_max = NO_TIMESTAMP, -1
    for pos, header in iter_batches(buf):
        check_crc(buf, pos, header)
        if next_offset is not None and header.base_offset < next_offset:
            raise CorruptBatchError(
                f"a replicated batch starts at offset {header.base_offset}, before the expected {next_offset}"
            )
        if header.last_offset_delta < 0:
            raise CorruptBatchError(f"the batch at offset {header.base_offset} ends before it starts")
        next_offset = header.next_offset
        end = pos + header.size
        batches.append(header)
        if header.max_timestamp > max_timestamp:
            max_timestamp, offset_of_max = header.max_timestamp, header.last_offset
    start = batches[0].base_offset if batches else (expected_offset or 0)
    return Validated(
        parts=[memoryview(buf)[:end]] if batches else [],
        batches=batches,
        first_offset=start,
        last_offset=batches[-1].last_offset if batches else start - 1,
        max_timestamp=max_timestamp,
        offset_of_max_timestamp=offset_of_max,
        size=end,
        log_append_time_ms=NO_TIMESTAMP,
    )


def _split(buf: Buffer, rules: ValidationRules) -> list[tuple[int, BatchHeader]]:
    """The position and header of each batch in `buf`. Other bytes are rejected (ProduceRequest.validateRecords)."""
    found: list[tuple[int, BatchHeader]] = []
    pos = 0
    end = len(buf)
    while pos < end:
        if found and rules.origin is Origin.CLIENT:
            raise _refused(rules, "a produce request may hold exactly one batch per partition; bytes follow the first")
        try:
            header = read_header(buf, pos)
        except CorruptBatchError as error:
            raise _no_batch(buf, pos, rules) or error from None
        size = LOG_OVERHEAD + header.batch_length
        if size > end - pos:
            raise _refused(rules, f"the batch declares {size} bytes, {end - pos} were sent")
        if size > rules.max_message_bytes:
            _check_size(size, rules)
        found.append((pos, header))
        pos += size
    if not found:
        raise _refused(rules, "there is no record batch in the request")
    return found


def _no_batch(buf: Buffer, pos: int, rules: ValidationRules) -> RecordValidationError | None:
    """The error for bytes at `pos` that are not a batch, if a retry would send the same bytes again.

    None if the bytes may have been damaged on the way, so that a retry may succeed.

    A producer retries after CORRUPT_MESSAGE and not after INVALID_RECORD. Kafka makes the same distinction
    (ByteBufferLogInputStream, ProduceRequest.validateRecords).
    """
    left = len(buf) - pos
    if left <= _HEAD_SIZE:
        return _refused(rules, f"{left} bytes are no record batch")
    length = int.from_bytes(buf[pos + 8 : pos + 12], "big", signed=True)
    magic = buf[pos + _HEAD_SIZE]
    if length < _SMALLEST_RECORD or magic > MAGIC:
        return None
    if length + LOG_OVERHEAD > left:
        return _refused(rules, f"the batch declares {length + LOG_OVERHEAD} bytes, {left} were sent")
    return None if magic == MAGIC else _refused(rules, "only batches of magic 2 may be produced (KIP-724)")


def _check_header(header: BatchHeader, rules: ValidationRules) -> None:
    """Check what LogValidator.validateBatch checks, and reject contradictions that Kafka's producer never sends."""
    count = header.record_count
    if count <= 0 or header.last_offset_delta < 0:
        raise _refused(rules, f"a batch of {count} records up to offset delta {header.last_offset_delta}")
    if rules.origin is not Origin.CLIENT:
        return
    if header.base_offset != 0:
        raise _refused(rules, f"a produced batch has base offset 0, not {header.base_offset}")
    if count != header.last_offset_delta + 1:
        raise _refused(rules, f"{count} records do not fill the offset deltas 0 to {header.last_offset_delta}")
    attributes = header.attributes
    if attributes & CONTROL_FLAG:
        raise _refused(rules, "clients may not write control records")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise _refused(
            rules,
            f"producer {header.producer_id} sent sequence {header.base_sequence} in epoch {header.producer_epoch}",
        )
    if attributes & TRANSACTIONAL_FLAG and header.producer_id < 0:
        raise _refused(rules, "a transactional batch without a producer id")
    if attributes & LOG_APPEND_TIME_FLAG:
        message = "producers may not set the timestamp type to LogAppendTime; that is the broker's"
        raise RecordValidationError(ErrorCode.INVALID_TIMESTAMP, f"{message} (topic {rules.topic})", [(0, message)])


def _assign(
    buf: Buffer,
    pos: int,
    header: BatchHeader,
    rules: ValidationRules,
    offset: int,
    leader_epoch: int,
    now_ms: int,
    parts: list[Buffer],
    checked: Checked | None,
) -> BatchHeader:
    """Check the records of one batch unless that was done, append the batch's bytes to `parts`, and return its stored
    header."""
    payload: Buffer = b""
    if checked is None:
        payload, max_timestamp = _check_records(buf, pos, header, rules, now_ms)
    else:
        max_timestamp = checked.max_timestamp
    end = pos + LOG_OVERHEAD + header.batch_length
    attributes = header.attributes
    codec = codec_of(attributes)
    control = attributes & CONTROL_FLAG
    target = codec if rules.compression_type is None else _target(header, rules)
    if rules.timestamp_type is TimestampType.LOG_APPEND_TIME and not control:
        attributes |= LOG_APPEND_TIME_FLAG
        max_timestamp = now_ms
    elif target is codec and max_timestamp == header.max_timestamp:
        parts += (_HEAD.pack(offset, header.batch_length, leader_epoch), memoryview(buf)[pos + _HEAD_SIZE : end])
        return moved(header, offset, leader_epoch)
    records: Buffer = memoryview(buf)[pos + HEADER_SIZE : end]
    if target is not codec:
        attributes = attributes & ~CODEC_MASK | target
        done = None if checked is None else checked.recompressed
        records = compress(target, payload, rules.compression_level) if done is None else done
    length = HEADER_SIZE - LOG_OVERHEAD + len(records)
    _check_size(length + LOG_OVERHEAD, rules)
    stored = header._replace(
        base_offset=offset,
        batch_length=length,
        partition_leader_epoch=leader_epoch,
        attributes=attributes,
        max_timestamp=max_timestamp,
    )
    crc = crc32c(records, crc32c(memoryview(stored.pack())[CRC_START:]))
    stored = stored._replace(crc=crc)
    parts += (stored.pack(), records)
    return stored


def _target(header: BatchHeader, rules: ValidationRules) -> CompressionType:
    """The codec with which the topic stores the batch. Control batches are stored unchanged, because their readers do
    not decompress."""
    if rules.compression_type is None or header.attributes & CONTROL_FLAG:
        return header.codec
    return rules.compression_type


def _check_records(
    buf: Buffer, pos: int, header: BatchHeader, rules: ValidationRules, now_ms: int, limit_bytes: int | None = None
) -> tuple[Buffer, int]:
    """The decompressed bytes of the records, and the largest timestamp of a record."""
    most = rules.decompressed_bytes_max if limit_bytes is None else min(limit_bytes, rules.decompressed_bytes_max)
    count, base = header.record_count, header.base_timestamp
    try:
        if header.attributes & CODEC_MASK:
            payload = records_payload(buf, pos, header, most, rules.max_decompressed_message_bytes)
        else:
            payload = memoryview(buf)[pos + HEADER_SIZE : pos + LOG_OVERHEAD + header.batch_length]
        last_at = check_chain(payload, count)
        found = open_record(payload, 0, 0, base)[0].timestamp
        if last_at:
            found = max(found, open_record(payload, last_at, count - 1, base)[0].timestamp)
        if not _every_record_matters(header, rules, found, now_ms):
            return payload, found
        scan = scan_records(bytes(payload), count, base)
    except DecompressionLimitError as error:
        if most < rules.decompressed_bytes_max:
            raise InflationError(most) from error
        # not retriable; Kafka's producer splits the batch
        raise RecordValidationError(ErrorCode.MESSAGE_TOO_LARGE, f"{error} (topic {rules.topic})") from error
    except CorruptBatchError as error:
        # the CRC was right, so a retry would send the same bytes: not retriable
        raise _refused(rules, str(error)) from error
    _refuse_records(bytes(payload), header, scan, rules, now_ms)
    return payload, scan.max_timestamp


def _every_record_matters(header: BatchHeader, rules: ValidationRules, found_ms: int, now_ms: int) -> bool:
    """Whether the topic's rules need all records, not only the first and the last one.

    Retention and the time index depend on the header's max timestamp. If neither the first nor the last record has that
    timestamp, all records are decoded.
    """
    return (
        rules.record_check is RecordCheck.FULL
        or (rules.compact and not header.is_control)
        or found_ms != header.max_timestamp
        or (
            (rules.timestamp_before_max_ms != LONG_MAX or found_ms - now_ms > rules.timestamp_after_max_ms)
            and rules.timestamp_type is TimestampType.CREATE_TIME
        )
    )


def _refuse_records(payload: bytes, header: BatchHeader, scan: Scan, rules: ValidationRules, now_ms: int) -> None:
    """If records are invalid, raise RecordValidationError, which names the first RECORD_ERRORS_MAX of them
    (LogValidator.processRecordErrors)."""
    bounded = rules.timestamp_type is TimestampType.CREATE_TIME
    oldest, newest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    needs_key = rules.compact and not header.is_control
    if not (needs_key and scan.keyless) and (
        not bounded or (oldest <= scan.min_timestamp and scan.max_timestamp <= newest)
    ):
        return
    code = ErrorCode.INVALID_RECORD
    count = 0
    errors: list[tuple[int, str]] = []
    for index, facts in enumerate(iter_facts(payload, header.record_count, header.base_timestamp)):
        if needs_key and not facts.has_key:
            problem = "a compacted topic takes no record without a key"
        elif bounded and facts.timestamp != NO_TIMESTAMP and not oldest <= facts.timestamp <= newest:
            code = ErrorCode.INVALID_TIMESTAMP
            problem = f"timestamp {facts.timestamp} is outside [{oldest}, {newest}]"
        else:
            continue
        count += 1
        if count <= RECORD_ERRORS_MAX:
            errors.append((index, problem))
    if errors:
        message = f"topic {rules.topic} refuses {count} records; record {errors[0][0]}: {errors[0][1]}"
        raise RecordValidationError(code, message, errors)


def _refused(rules: ValidationRules, reason: str) -> RecordValidationError:
    return RecordValidationError(ErrorCode.INVALID_RECORD, f"{reason} (topic {rules.topic})")


def _check_size(size: int, rules: ValidationRules) -> None:
    if size > rules.max_message_bytes and rules.origin is not Origin.RAFT_LEADER:
        raise RecordValidationError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes exceeds max.message.bytes={rules.max_message_bytes} of topic {rules.topic}",
        )
