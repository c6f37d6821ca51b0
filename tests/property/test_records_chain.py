"""`check_chain` skips over runs of equal records; here it is held against the plain definition."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.protocol.records.batch import read_varint
from barnabas.protocol.records.errors import CorruptBatchError
from barnabas.protocol.records.scan import check_chain


def _plainly(data: bytes, record_count: int) -> int | None:
    """Where the last record starts; None for a chain that is broken."""
    at = start = 0
    try:
        for _ in range(record_count):
            start = at
            length, at = read_varint(data, at)
            if length < 0:
                return None
            at += length
    except (IndexError, CorruptBatchError):
        return None
    return start if at == len(data) else None


def _checked(data: bytes, record_count: int) -> int | None:
    try:
        return check_chain(data, record_count)
    except CorruptBatchError:
        return None


def _varint(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 31)
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


_RUNS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2, 5, 62, 63, 64, 65, 127, 128, 200, 8191, 8192]) | st.integers(0, 300),
        st.integers(1, 40),
        st.integers(0, 255),
    ),
    max_size=8,
)


@given(_RUNS)
@example([(63, 9, 126), (64, 9, 1)])
def test_chains_of_runs(runs: list[tuple[int, int, int]]) -> None:
    data = b"".join((_varint(size) + bytes([fill]) * size) * times for size, times, fill in runs)
    count = sum(times for _, times, _ in runs)
    assert _checked(data, count) == _plainly(data, count)
    for wrong in (count - 1, count + 1, 0):
        assert _checked(data, wrong) == _plainly(data, wrong)


@given(_RUNS, st.data())
def test_damaged_chains(runs: list[tuple[int, int, int]], chosen: st.DataObject) -> None:
    data = bytearray(b"".join((_varint(size) + bytes([fill]) * size) * times for size, times, fill in runs))
    count = sum(times for _, times, _ in runs)
    for _ in range(3):
        if data:
            data[chosen.draw(st.integers(0, len(data) - 1))] = chosen.draw(st.integers(0, 255))
    cut = bytes(data[: chosen.draw(st.integers(0, len(data)))])
    assert _checked(bytes(data), count) == _plainly(bytes(data), count)
    assert _checked(cut, count) == _plainly(cut, count)


@given(st.binary(max_size=200), st.integers(-1, 60))
def test_any_bytes(data: bytes, count: int) -> None:
    assert _checked(data, count) == _plainly(data, count)
