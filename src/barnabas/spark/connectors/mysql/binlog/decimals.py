"""Codec: DECIMAL(p, s) of a row image to an Arrow array.

The digits before the point and those behind it are in groups of nine, each group 4 bytes, big-endian. A group with
fewer digits has 1 to 4 bytes; it is the first one before the point and the last one behind it. The highest bit of the
first byte is inverted; for a negative number all bits are inverted besides. Source: MySQL's decimal.cc, decimal2bin.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.protocol.records.columnar._jit import np, pa
from barnabas.protocol.records.columnar.from_numpy import validity_buffer

_PARTIAL_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_INT64_DIGITS: Final = 18
_ARROW_DIGITS: Final = 38


def binary_size(precision: int, scale: int) -> int:
    """The number of bytes of a cell."""
    return sum(size for size, _ in _groups(precision, scale))


def arrow_type(precision: int, scale: int) -> Any:
    """decimal128, or string for more digits than it has."""
    return pa.decimal128(precision, scale) if precision <= _ARROW_DIGITS else pa.string()


def _groups(precision: int, scale: int) -> list[tuple[int, int]]:
    """(bytes, digits) of each group, in their order."""
    whole = precision - scale
    result = [(_PARTIAL_BYTES[whole % 9], whole % 9)] + [(4, 9)] * (whole // 9)
    result += [(4, 9)] * (scale // 9) + [(_PARTIAL_BYTES[scale % 9], scale % 9)]
    return [group for group in result if group[1]]


def decode(raw: Any, valid: Any, precision: int, scale: int) -> Any:
    """An array of `arrow_type`. `raw` is a matrix of bytes, one row for each cell. Raises ValueError for a group that
    has more digits than its place."""
    raw = raw.copy()
    raw[:, 0] ^= 0x80
    negative = (raw[:, 0] & 0x80).astype(bool) & valid
    raw[negative] ^= 0xFF
    raw[~valid] = 0
    small = precision <= _INT64_DIGITS
    total = np.zeros(len(raw), np.int64 if small else object)
    at = 0
    for size, digits in _groups(precision, scale):
        group = np.zeros(len(raw), np.int64)
        for k in range(at, at + size):
            group = group << 8 | raw[:, k]
        at += size
        if len(group) and int(group.max()) >= 10**digits:
            raise ValueError(f"a group of {digits} digits of a DECIMAL({precision},{scale}) holds {int(group.max())}")
        total = total * 10**digits + (group if small else group.astype(object))
    if small:
        total[negative] *= -1
        return from_limbs(total.view(np.uint64), total >> 63, valid, pa.decimal128(precision, scale))
    signed = [-value if sign else value for value, sign in zip(total.tolist(), negative.tolist(), strict=True)]
    if precision > _ARROW_DIGITS:
        texts = [_text(value, scale) if ok else None for value, ok in zip(signed, valid.tolist(), strict=True)]
        return pa.array(texts, pa.string())
    limbs = np.frombuffer(b"".join([value.to_bytes(16, "little", signed=True) for value in signed]), np.uint64)
    limbs = limbs.reshape(len(raw), 2)
    return from_limbs(limbs[:, 0], limbs[:, 1].view(np.int64), valid, pa.decimal128(precision, scale))


def decode_one(raw: bytes, precision: int, scale: int) -> str:
    """One DECIMAL as text. `raw` has `binary_size` bytes."""
    digits = decode(np.frombuffer(raw, np.uint8).reshape(1, -1), np.ones(1, bool), precision, scale)
    return str(digits[0].as_py()) if precision > _ARROW_DIGITS else format(digits[0].as_py(), "f")


def _text(value: int, scale: int) -> str:
    digits = f"{abs(value):0{scale + 1}d}"
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else sign + digits


def from_limbs(low: Any, high: Any, valid: Any, kind: Any) -> Any:
    """A decimal128 array from the low 64 bits (unsigned) and the high 64 bits (signed) of each value."""
    limbs = np.empty((len(low), 2), np.uint64)
    limbs[:, 0] = low
    limbs[:, 1] = high.view(np.uint64)
    return pa.Array.from_buffers(kind, len(low), [validity_buffer(valid), pa.py_buffer(limbs)])
