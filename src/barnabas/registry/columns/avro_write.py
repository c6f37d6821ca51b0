"""Codec: encodes columns as Avro in bulk: the programs of `avro_program`, run in the other direction.

    struct column -> its leaves as numbers and as positions in one buffer -> kernel -> frames, one after the other

Schemas that a program cannot write, and values that do not fit the schema, are left to fastavro, whose errors name the
value.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow.compute

from barnabas.client.columns.byte_column import (
    BYTES,
    MUTABLE_BYTES,
    OUT_I64,
    copy_bytes,
    from_arrow,
    kernel,
    np,
    pa,
    scalar,
)
from barnabas.registry.columns.avro_kernels import STEPS
from barnabas.registry.columns.avro_program import (
    AvroStep,
    ColumnNode,
    Constant,
    Items,
    Leaf,
    NoProgramError,
    Program,
    StructNode,
)

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time
_NUMBERS: Final = "Array(int64, 2, 'C', readonly=True)"
_VALID: Final = "Array(uint8, 2, 'C', readonly=True)"
_BOOLEAN: Final = int(AvroStep.BOOLEAN)
_FLOAT: Final = int(AvroStep.FLOAT)
_DOUBLE: Final = int(AvroStep.DOUBLE)
_BYTES: Final = int(AvroStep.BYTES)
_FIXED: Final = int(AvroStep.FIXED)
_NULL: Final = int(AvroStep.NULL)
_RECORD: Final = int(AvroStep.RECORD)
_VARINT_BYTES_MAX: Final = 10
_COLUMN_BYTES_MAX: Final = (1 << 31) - 1


@kernel((MUTABLE_BYTES, scalar, scalar), returns=scalar)
def _write_varint(out: Any, position: int, value: int) -> int:
    left = (np.uint64(value) << np.uint64(1)) ^ np.uint64(value >> 63)
    while left > np.uint64(0x7F):
        out[position] = np.uint8((left & np.uint64(0x7F)) | np.uint64(0x80))
        left >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(left)
    return position + 1


@kernel((BYTES, scalar, scalar, STEPS, _NUMBERS, _VALID, BYTES, MUTABLE_BYTES, OUT_I64), returns=scalar)
def _write_row(
    start: Any, row: int, position: int, steps: Any, numbers: Any, valid: Any, data: Any, out: Any, bad: Any
) -> int:
    for at in range(len(start)):
        out[position + at] = start[at]
    position += len(start)
    index = 0
    while index < len(steps):
        kind, slot, null_branch = steps[index, 0], steps[index, 1], steps[index, 2]
        if null_branch >= 0:
            present = valid[slot, row]
            position = _write_varint(out, position, 1 - null_branch if present else null_branch)
            if not present:
                index = steps[index, 3]
                continue
        index += 1
        if kind in (_NULL, _RECORD):
            continue
        if not valid[slot, row]:
            bad[0] = 1
            return position
        value = numbers[slot, row]
        if kind == _BOOLEAN:
            out[position] = np.uint8(value)
            position += 1
        elif kind in (_FLOAT, _DOUBLE):
            width = 4 if kind == _FLOAT else 8
            for at in range(width):
                out[position + at] = np.uint8((value >> (8 * at)) & 0xFF)
            position += width
        elif kind in (_BYTES, _FIXED):
            size = numbers[slot + 1, row]
            if kind == _BYTES:
                position = _write_varint(out, position, size)
            copy_bytes(out, position, data, value, size)
            position += size
        else:
            position = _write_varint(out, position, value)
    return position


@kernel((BYTES, BYTES, STEPS, _NUMBERS, _VALID, BYTES, MUTABLE_BYTES, OUT_I64, OUT_I64))
def _write_rows(
    start: Any, present: Any, steps: Any, numbers: Any, valid: Any, data: Any, out: Any, offsets: Any, bad: Any
) -> None:
    position = 0
    for row in range(len(present)):
        if present[row]:
            position = _write_row(start, row, position, steps, numbers, valid, data, out, bad)
        offsets[row + 1] = position


def write_program(program: Program, node: ColumnNode, column: Any, start: bytes) -> Any:
    """The column as binary, each row with the prefix `start`; null rows stay null. Raises NoProgramError if fastavro
    must write the column.
    """
    rows = len(column)
    loader = _SlotLoader(program, rows)
    present = np.asarray(column.is_valid())
    try:
        loader.load(node, column, present)
    except (pa.ArrowException, TypeError, ValueError, KeyError) as error:
        raise NoProgramError(str(error)) from error
    data = np.concatenate(loader.chunks) if loader.chunks else np.zeros(0, np.uint8)
    texts = sum(int(loader.numbers[slot].sum()) for slot in loader.lengths)
    limit = rows * (len(start) + (_VARINT_BYTES_MAX + 1) * len(program.steps)) + texts
    out, offsets, bad = np.empty(limit, np.uint8), np.zeros(rows + 1, np.int64), np.zeros(1, np.int64)
    first = np.frombuffer(start, np.uint8)
    here = present.astype(np.uint8)
    _write_rows(first, here, program.table(), loader.numbers, loader.valid, data, out, offsets, bad)
    if bad[0]:
        raise NoProgramError("null for a schema without null")
    size = int(offsets[-1])
    if size > _COLUMN_BYTES_MAX:
        raise NoProgramError("more bytes than one column can have")
    bits = None if bool(present.all()) else pa.array(present).buffers()[1]
    buffers = [bits, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out[:size].copy())]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


class _SlotLoader:
    """Fills the slots of a program (see `avro_program.py`) with the values of a column."""

    def __init__(self, program: Program, rows: int) -> None:
        self.numbers = np.zeros((program.slots, rows), np.int64)
        self.valid = np.zeros((program.slots, rows), np.uint8)
        self.chunks: list[Any] = []
        self.lengths: list[int] = []
        self._chunk_at = 0

    def load(self, node: ColumnNode, column: Any, present: Any) -> None:
        """Fill the slots of a node and of the nodes below it from `column`. `present` marks the rows in which none of
        the enclosing structs is null.
        """
        assert not isinstance(node, Constant), "with equal schemas no field is constant"
        here = present & np.asarray(column.is_valid())
        if isinstance(node, Items):
            raise NoProgramError("lists and maps are written row by row")
        if isinstance(node, Leaf):
            if pa.types.is_decimal(node.kind):
                raise NoProgramError("decimals are written row by row")
            if node.step is not AvroStep.NULL:
                self.valid[node.slot] = here
                self._leaf(node, column, here)
            return
        self._record(node, column, present, here)

    def _record(self, node: StructNode, column: Any, present: Any, here: Any) -> None:
        if node.slot >= 0:
            self.valid[node.slot] = here
        elif not bool((here == present).all()):
            raise NoProgramError("null for a record")
        names = {column.type.field(index).name for index in range(column.type.num_fields)}
        for name, child in node.fields:
            if name not in names:
                raise NoProgramError("a field is missing")
            self.load(child, column.field(name), here)

    def _leaf(self, node: Leaf, column: Any, here: Any) -> None:
        kind, step, slot = node.kind, node.step, node.slot
        if step in (AvroStep.BYTES, AvroStep.FIXED):
            taken = from_arrow(column.cast(kind))
            self.numbers[slot] = np.where(here, taken.at + self._chunk_at, 0)
            self.numbers[slot + 1] = np.where(here, taken.length, 0)
            self.chunks.append(taken.data)
            self.lengths.append(slot + 1)
            self._chunk_at += len(taken.data)
            return
        if step is AvroStep.ENUM:
            found = _pc.index_in(column.cast(pa.string()), value_set=pa.array(node.symbols, pa.string()))
            if not bool(np.asarray(found.is_valid())[here].all()):
                raise NoProgramError("not a symbol")
            numbers = found.fill_null(0).to_numpy()
        elif step is AvroStep.BOOLEAN:
            numbers = column.cast(pa.bool_()).fill_null(False).to_numpy(zero_copy_only=False)
        elif step is AvroStep.FLOAT:
            numbers = column.cast(pa.float32()).fill_null(0).to_numpy().view(np.uint32)
        elif step is AvroStep.DOUBLE:
            numbers = column.cast(pa.float64()).fill_null(0).to_numpy().view(np.int64)
        else:
            plain = pa.int32() if kind.bit_width == 32 else pa.int64()
            numbers = column.cast(kind).view(plain).fill_null(0).to_numpy()
        self.numbers[slot] = numbers
