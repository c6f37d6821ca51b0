"""Codec: timestamps in UTC -> texts such as 2026-01-02T03:04:05.5Z, the form of Debezium's ZonedTimestamp.

Arrow's cast from timestamps without zone to text is much faster than its `strftime`, and all its texts for the years 0
to 9999 have one length: they are the rows of a matrix of bytes, which numpy changes as a whole.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow.compute

from barnabas.client.columns.byte_column import np, pa, validity_buffer

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

_SECOND: Final = 1_000_000
_FIRST: Final = -62_167_219_200 * _SECOND
"""The begin of the year 0, in microseconds since 1970."""
_END: Final = 253_402_300_800 * _SECOND
"""The begin of the year 10000."""
_SECONDS_WIDTH: Final = 19
_MICROS_WIDTH: Final = 26


def zoned_texts(micros: Any, digits: int | None) -> Any:
    """Microseconds in UTC as an array of texts. `digits` is the number of digits of the second's fraction; None: as
    many as each value needs."""
    numbers = _pc.fill_null(micros.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    if not len(numbers):
        return pa.array([], pa.string())
    if numbers.min() < _FIRST or numbers.max() >= _END:
        return _of_any_year(micros, digits)
    fraction = numbers % _SECOND
    if digits is None and not fraction.any():
        digits = 0
    if digits is None:
        places = np.zeros(len(numbers), np.int64)
        for place in range(6):
            places += fraction % 10 ** (6 - place) != 0
        lengths = _SECONDS_WIDTH + places + (places > 0)
    else:
        lengths = np.full(len(numbers), _SECONDS_WIDTH + digits + (digits > 0), np.int64)
    width = int(lengths.max())
    texts = _matrix(numbers, _SECONDS_WIDTH if width == _SECONDS_WIDTH else _MICROS_WIDTH)
    rows = np.empty((len(numbers), width + 1), np.uint8)
    rows[:, :width] = texts[:, :width]
    rows[:, 10] = ord("T")
    if int(lengths.min()) == width:
        rows[:, width] = ord("Z")
        data = rows
    else:
        rows[np.arange(len(numbers)), lengths] = ord("Z")
        data = rows[np.arange(width + 1) <= lengths[:, None]]
    offsets = np.zeros(len(numbers) + 1, np.int32)
    np.cumsum(lengths + 1, out=offsets[1:])
    validity = validity_buffer(micros.is_valid().to_numpy(zero_copy_only=False)) if micros.null_count else None
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(numbers), buffers, micros.null_count)


def _matrix(numbers: Any, width: int) -> Any:
    """The texts of Arrow, such as `2026-01-02 03:04:05.500000`, one in each row; without the fraction if the width is
    that of seconds."""
    if width == _SECONDS_WIDTH:
        stamps = pa.array(numbers // _SECOND, pa.int64()).cast(pa.timestamp("s"))
    else:
        stamps = pa.array(numbers, pa.int64()).cast(pa.timestamp("us"))
    data = stamps.cast(pa.string()).buffers()[2]
    return np.frombuffer(data, np.uint8, len(numbers) * width).reshape(len(numbers), width)


def _of_any_year(micros: Any, digits: int | None) -> Any:
    texts = _pc.strftime(micros.cast(pa.timestamp("us", "UTC")), format="%Y-%m-%dT%H:%M:%S")
    fraction = _pc.replace_substring_regex(texts, r"^[^.]*", "")
    whole = _pc.replace_substring_regex(texts, r"\..*$", "")
    kept = _pc.utf8_rtrim(fraction, "0") if digits is None else _pc.utf8_slice_codeunits(fraction, 0, digits + 1)
    return _pc.binary_join_element_wise(whole, _pc.utf8_rtrim(kept, "."), "Z", "")
