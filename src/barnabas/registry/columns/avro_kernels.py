"""Codec: the compiled kernel that runs an `avro_program` over the rows of a column, and builds Arrow columns from its
results.

One interpreter serves all schemas and is compiled once. A row is a sequence of a few steps, so finding the next step
costs less than reading its bytes. The input is not trusted: each read is checked against the row's end. A row that is
truncated, or names a union branch or an enum symbol that does not exist, gets an error status, and its values are null.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.client.columns.byte_column import (
    BYTES,
    I32,
    I64,
    MUTABLE_BYTES,
    OUT_I64,
    PAIR,
    ByteColumn,
    copy_bytes,
    kernel,
    np,
    pa,
    scalar,
)
from barnabas.registry.columns.avro_program import (
    ITEMS_DEPTH_MAX,
    AvroStep,
    ColumnNode,
    Constant,
    Items,
    Leaf,
    Program,
    StructNode,
)
from barnabas.registry.serde.wire_format import HEADER

STEPS: Final = "Array(int64, 2, 'C', readonly=True)"
NUMBERS: Final = "int64[:, ::1]"
VALID: Final = "uint8[:, ::1]"

GOOD: Final = 0
TRUNCATED: Final = 1
BAD_BRANCH: Final = 2
BAD_NUMBER: Final = 3
BAD_LENGTH: Final = 4
PROBLEMS: Final = {
    TRUNCATED: "the row ends before its last field",
    BAD_BRANCH: "the row has an index of a union branch or enum symbol that its schema does not have",
    BAD_NUMBER: "a number is out of range",
    BAD_LENGTH: "the length of a field is larger than the rest of the row",
}
_BOOLEAN: Final = int(AvroStep.BOOLEAN)
_INT: Final = int(AvroStep.INT)
_FLOAT: Final = int(AvroStep.FLOAT)
_DOUBLE: Final = int(AvroStep.DOUBLE)
_BYTES: Final = int(AvroStep.BYTES)
_FIXED: Final = int(AvroStep.FIXED)
_ENUM: Final = int(AvroStep.ENUM)
_NULL: Final = int(AvroStep.NULL)
_RECORD: Final = int(AvroStep.RECORD)
_ITEMS: Final = int(AvroStep.ITEMS)


@kernel((BYTES, scalar, scalar), returns=PAIR)
def _varint(data: Any, position: int, end: int) -> tuple[int, int]:
    """(number, position after the number); the position is -TRUNCATED or -BAD_NUMBER if there is no valid number."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while position < end:
        byte = np.uint64(data[position])
        position += 1
        if shift == 63 and byte > 1:
            return 0, -BAD_NUMBER
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < 0x80:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += np.uint64(7)
        if shift > 63:
            return 0, -BAD_NUMBER
    return 0, -TRUNCATED


@kernel((BYTES, scalar, scalar), returns=PAIR)
def _block(data: Any, position: int, end: int) -> tuple[int, int]:
    """(number of items in the next block, 0 at the end; position of the first item). An item has at least one byte."""
    count, position = _varint(data, position, end)
    if position < 0:
        return 0, position
    if count < 0:  # then the block's size in bytes follows, for readers that skip blocks
        count = -count
        _, position = _varint(data, position, end)
        if position < 0:
            return 0, position
    if count < 0 or count > end - position:
        return 0, -BAD_LENGTH
    return count, position


@kernel((BYTES, scalar, scalar, STEPS, NUMBERS, VALID, scalar, NUMBERS), returns=scalar)
def _read_row(data: Any, position: int, end: int, steps: Any, numbers: Any, valid: Any, row: int, stack: Any) -> int:
    """Run the steps of the compiled schema over one row. Returns the position after it, or a negative error status.

    The items of arrays and maps are only skipped, in a loop. `stack` has an entry for each array or map that the loop
    is inside: its step, where its items begin, the number of its items, the number of items left in the block, and
    where the steps around it end. (This is a loop because numba cannot cache recursive functions.)
    """
    index, last, depth = 0, len(steps), 0
    while True:
        if index >= last:
            if depth == 0:
                return position
            around = depth - 1
            place = stack[around, 0]
            stack[around, 3] -= 1
            if stack[around, 3] > 0:
                index = place + 1
                continue
            count, position = _block(data, position, end)
            if position < 0:
                return position
            if count > 0:
                stack[around, 2] += count
                stack[around, 3] = count
                index = place + 1
                continue
            slot = steps[place, 1]
            if slot >= 0:
                numbers[slot, row], numbers[slot + 1, row] = stack[around, 1], stack[around, 2]
                numbers[slot + 2, row] = position
                valid[slot, row] = 1
            index, last, depth = steps[place, 3], stack[around, 4], around
            continue
        at_step = index
        kind, slot, null_branch = steps[index, 0], steps[index, 1], steps[index, 2]
        if null_branch >= 0:
            branch, position = _varint(data, position, end)
            if position < 0:
                return position
            if branch == null_branch:
                index = steps[index, 3]
                continue
            if branch != 1 - null_branch:
                return -BAD_BRANCH
        index += 1
        if kind == _NULL:
            continue
        if kind == _ITEMS:
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = at_step, position, 0
            stack[depth, 3], stack[depth, 4] = 1, last
            depth += 1
            index = last = steps[at_step, 3]  # the next item is the first of a block, as after the last item of a block
            continue
        value = np.int64(0)
        if kind == _RECORD:
            value = np.int64(1)
        elif kind == _BOOLEAN:
            if position >= end:
                return -TRUNCATED
            value = np.int64(1 if data[position] else 0)
            position += 1
        elif kind in (_FLOAT, _DOUBLE):
            width = 4 if kind == _FLOAT else 8
            if position + width > end:
                return -TRUNCATED
            for at in range(width):
                value |= np.int64(data[position + at]) << (8 * at)
            position += width
        elif kind in (_BYTES, _FIXED):
            size = steps[at_step, 4]
            if kind == _BYTES:
                size, position = _varint(data, position, end)
                if position < 0:
                    return position
            if size < 0 or size > end - position:
                return -BAD_LENGTH
            if slot >= 0:
                numbers[slot + 1, row] = size
            value = position
            position += size
        else:
            value, position = _varint(data, position, end)
            if position < 0:
                return position
            if kind == _INT and not -2147483648 <= value <= 2147483647:
                return -BAD_NUMBER
            if kind == _ENUM and not 0 <= value < steps[at_step, 4]:
                return -BAD_BRANCH
        if slot >= 0:
            numbers[slot, row] = value
            valid[slot, row] = 1


@kernel((BYTES, I64, I32, I64, STEPS, NUMBERS, VALID, OUT_I64, NUMBERS))
def _read_rows(
    data: Any, at: Any, length: Any, rows: Any, steps: Any, numbers: Any, valid: Any, status: Any, stack: Any
) -> None:
    for row in range(len(rows)):
        source = rows[row]
        end = at[source] + length[source]
        found = _read_row(data, at[source] + 5, end, steps, numbers, valid, row, stack)
        if found < 0:
            status[row] = -found
            for slot in range(len(numbers)):
                numbers[slot, row] = 0
                valid[slot, row] = 0


@kernel((BYTES, I64, I64, I64, STEPS, NUMBERS, VALID, NUMBERS), returns=scalar)
def _read_items(
    data: Any, starts: Any, counts: Any, ends: Any, steps: Any, numbers: Any, valid: Any, stack: Any
) -> int:
    """Read the items of all rows as rows of their own. Returns the number of items; `_read_row` has validated them."""
    item = 0
    for row in range(len(starts)):
        left, position, end = counts[row], starts[row], ends[row]
        while left > 0:
            count, position = _block(data, position, end)
            if position < 0 or count <= 0 or count > left:
                return -1
            for _ in range(count):
                position = _read_row(data, position, end, steps, numbers, valid, item, stack)
                if position < 0:
                    return -1
                item += 1
            left -= count
    return item


@kernel((BYTES, I64, I64, BYTES, OUT_I64), returns=scalar)
def _decimals(data: Any, at: Any, length: Any, valid: Any, out: Any) -> int:
    """Convert big-endian two's complement numbers to Arrow's 16-byte decimals: the low half of row i at 2i, the high
    half at 2i + 1. Returns the first row that needs more than 16 bytes, or -1.
    """
    for row in range(len(at)):
        low, high = np.uint64(0), np.uint64(0)
        size = length[row]
        if valid[row] and size > 0:
            fill = np.uint8(0xFF) if data[at[row]] >= 0x80 else np.uint8(0)
            if fill:
                low = high = ~np.uint64(0)
            for place in range(size):
                byte = data[at[row] + place]
                if size - place > 16 and byte != fill:
                    return row
                if size - place == 16 and (byte ^ fill) & 0x80:
                    return row
                high = (high << np.uint64(8)) | (low >> np.uint64(56))
                low = (low << np.uint64(8)) | np.uint64(byte)
        out[2 * row] = np.int64(low)
        out[2 * row + 1] = np.int64(high)
    return -1


@kernel((BYTES, I64, I64, I64, MUTABLE_BYTES))
def _gather(data: Any, at: Any, length: Any, offsets: Any, out: Any) -> None:
    for row in range(len(at)):
        if length[row]:
            copy_bytes(out, offsets[row], data, at[row], length[row])


def run_program(program: Program, node: ColumnNode, framed: ByteColumn, rows: Any) -> tuple[Any, Any]:
    """(the column of these rows, which must be framed; a status for each row: GOOD or a key of PROBLEMS).

    Raises ArrowInvalid if a string is not UTF-8 or a decimal is too long.
    """
    assert HEADER.size == 5, "the kernel skips frame headers of five bytes"
    count = len(rows)
    numbers = np.zeros((program.slots, count), np.int64)
    valid = np.zeros((program.slots, count), np.uint8)
    status = np.zeros(count, np.int64)
    _read_rows(framed.data, framed.at, framed.length, rows, program.table(), numbers, valid, status, _new_stack())
    return _Builder(framed.data, numbers, valid, count).build(node, status != GOOD), status


def _new_stack() -> Any:
    return np.zeros((ITEMS_DEPTH_MAX, 5), np.int64)


class _Builder:
    def __init__(self, data: Any, numbers: Any, valid: Any, count: int) -> None:
        self.data = data
        self.numbers = numbers
        self.valid = valid
        self.count = count

    def build(self, node: ColumnNode, bad: Any = None) -> Any:
        """Build the Arrow column of one Avro schema node (constant, struct, list or map, or scalar).

        `bad` marks, for a struct that is the whole row, the rows whose bytes could not be decoded. They become null.
        """
        if isinstance(node, Constant):
            return pa.repeat(pa.scalar(node.value, node.kind), self.count)
        if isinstance(node, StructNode):
            absent = bad
            if node.slot >= 0:
                absent = self.valid[node.slot] == 0
            mask = pa.array(absent) if absent is not None and bool(absent.any()) else None
            children = [self.build(child) for _, child in node.fields]
            if not children:
                return pa.array([{}] * self.count, node.kind) if mask is None else pa.nulls(self.count, node.kind)
            return pa.StructArray.from_arrays(children, fields=list(node.kind), mask=mask)
        return self._items(node) if isinstance(node, Items) else self._leaf(node)

    def _items(self, node: Items) -> Any:
        starts, counts, ends = (np.ascontiguousarray(self.numbers[node.slot + part]) for part in range(3))
        offsets = np.zeros(self.count + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        total = int(offsets[-1])
        numbers = np.zeros((node.program.slots, total), np.int64)
        valid = np.zeros((node.program.slots, total), np.uint8)
        found = _read_items(self.data, starts, counts, ends, node.program.table(), numbers, valid, _new_stack())
        assert found == total, "the first pass has validated these items"
        inner = _Builder(self.data, numbers, valid, total)
        values = inner.build(node.value)
        if node.key is not None:
            fields = [node.kind.key_field, node.kind.item_field]
            values = pa.StructArray.from_arrays([inner.build(node.key), values], fields=fields)
        absent = self.valid[node.slot] == 0
        bits = pa.array(~absent).buffers()[1] if bool(absent.any()) else None
        buffers = [bits, pa.py_buffer(offsets.astype(np.int32))]
        return pa.Array.from_buffers(node.kind, self.count, buffers, children=[values])

    def _leaf(self, node: Leaf) -> Any:
        kind, step = node.kind, node.step
        if step is AvroStep.NULL:
            return pa.nulls(self.count, kind)
        values, absent = self.numbers[node.slot], self.valid[node.slot] == 0
        mask = absent if bool(absent.any()) else None
        if pa.types.is_decimal(kind):
            return self._decimal(node, mask)
        if step in (AvroStep.BYTES, AvroStep.FIXED):
            return self._bytes(values, self.numbers[node.slot + 1], mask, kind)
        if step is AvroStep.ENUM:
            symbols = pa.array(node.symbols, pa.string())
            return symbols.take(pa.array(values, mask=mask))
        if step is AvroStep.BOOLEAN:
            return pa.array(values.astype(bool), mask=mask)
        if step is AvroStep.FLOAT:
            values = values.astype(np.uint32).view(np.float32)
        elif step is AvroStep.DOUBLE:
            values = values.view(np.float64)
        if pa.types.is_floating(kind):
            return pa.array(values.astype(kind.to_pandas_dtype(), copy=False), kind, mask=mask)
        if kind.bit_width == 32:
            return pa.array(values.astype(np.int32), pa.int32(), mask=mask).view(kind)
        return pa.array(values, pa.int64(), mask=mask).view(kind)

    def _decimal(self, node: Leaf, mask: Any) -> Any:
        at, length, valid = self.numbers[node.slot], self.numbers[node.slot + 1], self.valid[node.slot]
        out = np.empty(2 * self.count, np.int64)
        if _decimals(self.data, at, length, valid, out) >= 0:
            raise pa.ArrowInvalid("a decimal of more than 16 bytes")
        bits = None if mask is None else pa.array(~mask).buffers()[1]
        column = pa.Array.from_buffers(node.kind, self.count, [bits, pa.py_buffer(out)])
        column.validate(full=True)  # checks that no value has more digits than the type
        return column

    def _bytes(self, at: Any, length: Any, mask: Any, kind: Any) -> Any:
        offsets = np.zeros(self.count + 1, np.int64)
        np.cumsum(length, out=offsets[1:])
        out = np.empty(int(offsets[-1]), np.uint8)
        _gather(self.data, np.ascontiguousarray(at), np.ascontiguousarray(length), offsets, out)
        bits = None if mask is None else pa.array(~mask).buffers()[1]
        if pa.types.is_fixed_size_binary(kind):
            return self._fixed(at, mask, kind, out, bits)
        # A column is smaller than 2 GiB, so the selected bytes are too, and int32 offsets are sufficient.
        buffers = [bits, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)]
        column = pa.Array.from_buffers(kind, self.count, buffers)
        if pa.types.is_string(kind):
            column.validate(full=True)
        return column

    def _fixed(self, at: Any, mask: Any, kind: Any, out: Any, bits: Any) -> Any:
        if mask is not None:
            spread = np.zeros((self.count, kind.byte_width), np.uint8)
            spread[~mask] = out.reshape(-1, kind.byte_width)
            out = spread.reshape(-1)
        return pa.Array.from_buffers(kind, self.count, [bits, pa.py_buffer(out)])


__all__ = ["GOOD", "PROBLEMS", "run_program"]
