"""Codec: rows events to Arrow record batches, column by column.

    row:    one image (INSERT, DELETE), or the image before and the image after (UPDATE)
    image:  (n + 7) // 8 bytes: which of the image's n columns are null, lowest bit first; then the cells that are not
    cell:   of a width that the column's type gives, or with its length before it (1 to 4 bytes)

A run of events of one table and kind is decoded at once: a compiled loop finds the cells of all rows, then each wanted
column is decoded as a whole. A server writes events of about 8 KiB (binlog_row_event_max_size), so that long runs
matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from barnabas.protocol.records.columnar._jit import np, pa
from barnabas.spark.connectors.mysql.binlog.codes import ChangeKind
from barnabas.spark.connectors.mysql.binlog.events import BinlogColumn, BinlogTable, RowsEvent
from barnabas.spark.connectors.mysql.binlog.row_kernels import find_cells
from barnabas.spark.connectors.mysql.binlog.values import Cells, cell_width, column_decoder
from barnabas.spark.connectors.mysql.errors import BinlogError, BinlogLimitError, UnsupportedBinlogError

RUN_BYTES_MAX: Final = (1 << 31) - 1
"""The largest sum of the bytes of a run: Arrow's offsets have 32 bits."""


class DecodedRows(Struct, frozen=True):
    """The rows of a run, in their order. `before` is None for INSERT, `after` is None for DELETE.

    The record batches have those wanted columns that the images have, all of them with binlog_row_image=FULL.
    `zero_dates` is the number of cells that became null because they hold no date, such as 0000-00-00.
    `counts` has the number of rows of each event of the run.
    """

    kind: ChangeKind
    before: Any
    after: Any
    count: int
    zero_dates: int
    counts: Any


def check_described(table: BinlogTable) -> None:
    """Raise UnsupportedBinlogError if the TABLE_MAP cannot be read, or has no metadata of binlog_row_metadata=FULL."""
    if table.unreadable:
        raise UnsupportedBinlogError(table.unreadable)
    if not table.described:
        raise UnsupportedBinlogError(
            f"the binlog describes {table.database}.{table.name} without names and signs of its columns. Run SET "
            "GLOBAL binlog_row_metadata = 'FULL' (in the configuration file, too), and start from a new snapshot"
        )


class RowDecoder:
    """Decodes the rows of one table as a TABLE_MAP event describes it.

    `indexes` are those of the wanted columns; None stands for all columns. Cells of other columns are passed over, so
    that their types and values do not matter. Raises UnsupportedBinlogError if `check_described` does, or if a wanted
    column is one that this package does not read.
    """

    def __init__(self, table: BinlogTable, indexes: Sequence[int] | None = None) -> None:
        check_described(table)
        self.table = table
        wanted = range(len(table.columns)) if indexes is None else sorted(indexes)
        self._widths = [cell_width(table, column) for column in table.columns]
        self._decoders = {i: column_decoder(table, table.columns[i]) for i in wanted}

    @property
    def schema(self) -> Any:
        """The Arrow schema of a full row image. Every field may be null, since a zero date becomes null."""
        return pa.schema(
            [pa.field(self.table.columns[i].name, decoder.type, nullable=True) for i, decoder in self._decoders.items()]
        )

    def decode(self, run: Sequence[RowsEvent]) -> DecodedRows:
        """Decode events that have the same kind and the same columns, at least one, with at most RUN_BYTES_MAX bytes.

        Raises BinlogError if a row leaves its event, or a cell has no valid value.
        """
        first = run[0]
        where = f"rows of {self.table.database}.{self.table.name} that end at {first.end}"
        for event in run:
            if (event.kind, event.before, event.after) != (first.kind, first.before, first.after):
                raise ValueError("a run has events of one kind and with the same columns")
            if event.width != len(self.table.columns):
                raise BinlogError(
                    f"{where}: the event has {event.width} columns, its TABLE_MAP has {len(self.table.columns)}: the "
                    "binlog is damaged; start from a new snapshot"
                )
        total = sum(len(event.data) for event in run)
        if total > RUN_BYTES_MAX:
            raise BinlogLimitError(f"{where}: a run of {total} bytes is too large, the limit is {RUN_BYTES_MAX}")
        images = [self._columns_of(bitmap, where) for bitmap in (first.before, first.after) if bitmap is not None]
        found = self._find(run, images, where)
        batches: list[Any] = []
        zero_dates = 0
        for number, indexes in enumerate(images):
            arrays, zeros = self._image(found, number, indexes, where)
            names = [self.table.columns[i].name for i in indexes if i in self._decoders]
            batches.append(_batch(arrays, names, found.rows))
            zero_dates += zeros
        before = None if first.before is None else batches[0]
        after = None if first.after is None else batches[-1]
        return DecodedRows(first.kind, before, after, found.rows, zero_dates, found.counts)

    def _columns_of(self, bitmap: int, where: str) -> list[int]:
        """The indexes of the columns that an image has."""
        return [i for i in range(len(self.table.columns)) if bitmap >> i & 1]

    def _find(self, run: Sequence[RowsEvent], images: list[list[int]], where: str) -> _Found:
        """The cells of all rows. The images of an UPDATE may have different numbers of columns (row image MINIMAL):
        then the rows are found image by image."""
        data = np.frombuffer(run[0].data if len(run) == 1 else b"".join([event.data for event in run]), np.uint8)
        ends = np.cumsum(np.array([len(event.data) for event in run], np.int64))
        begins = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
        widths = [[self._widths[i] for i in indexes] for indexes in images]
        if len({len(image) for image in widths}) > 1 or not widths[0]:
            return _find_uneven(data, begins, ends, widths, where)
        flat = np.array([width for image in widths for width in image], np.int32)
        counts = np.zeros(len(run), np.int64)
        none64, none32 = np.zeros(0, np.int64), np.zeros(0, np.int32)
        rows = find_cells(len(widths), data, begins, ends, flat, counts, none64, none32)
        if rows < 0:
            raise _left(where, int(-1 - rows))
        at = np.empty(len(flat) * rows, np.int64)
        length = np.empty(len(flat) * rows, np.int32)
        find_cells(len(widths), data, begins, ends, flat, counts, at, length)
        shape = (len(widths), len(widths[0]), rows)
        return _Found(data, list(at.reshape(shape)), list(length.reshape(shape)), int(rows), counts)

    def _image(self, found: _Found, number: int, indexes: list[int], where: str) -> tuple[list[Any], int]:
        arrays = []
        zero_dates = 0
        for slot, i in enumerate(indexes):
            decoder = self._decoders.get(i)
            if decoder is None:
                continue
            cells = Cells(found.data, found.at[number][slot], found.length[number][slot])
            try:
                array, zeros = decoder.decode(cells)
            except (ValueError, UnicodeDecodeError, pa.ArrowInvalid) as error:
                raise _bad_cell(where, self.table.columns[i], error) from error
            arrays.append(array)
            zero_dates += zeros
        return arrays, zero_dates


class _Found(Struct):
    """The cells of all rows: for each image, positions and lengths by column and row."""

    data: Any
    at: list[Any]
    length: list[Any]
    rows: int
    counts: Any


def _find_uneven(data: Any, begins: Any, ends: Any, widths: list[list[int]], where: str) -> _Found:
    """Find the cells of rows whose images have different numbers of columns, in plain Python."""
    raw = data.tobytes()
    at: list[list[list[int]]] = [[[] for _ in image] for image in widths]
    length: list[list[list[int]]] = [[[] for _ in image] for image in widths]
    rows = 0
    counts = np.zeros(len(begins), np.int64)
    for part, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        position = begin
        if not any(widths):
            raise _left(where, part)
        while position < end:
            for image, image_widths in enumerate(widths):
                bitmap = int.from_bytes(raw[position : position + (len(image_widths) + 7) // 8], "little")
                position += (len(image_widths) + 7) // 8
                for column, width in enumerate(image_widths):
                    if bitmap >> column & 1:
                        at[image][column].append(0)
                        length[image][column].append(-1)
                        continue
                    size = width
                    if width < 0:
                        size = int.from_bytes(raw[position : position - width], "little")
                        position -= width
                    at[image][column].append(position)
                    length[image][column].append(size)
                    position += size
                    if position > end:
                        raise _left(where, part)
                if position > end:
                    raise _left(where, part)
            rows += 1
            counts[part] += 1
    return _Found(
        data,
        [[np.array(cells, np.int64) for cells in image] for image in at],
        [[np.array(cells, np.int32) for cells in image] for image in length],
        rows,
        counts,
    )


def _batch(arrays: list[Any], names: list[str], rows: int) -> Any:
    """A record batch; one without columns still has its number of rows."""
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, names=names)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def _left(where: str, part: int) -> BinlogError:
    return BinlogError(
        f"{where}: a row leaves event {part + 1} of the run: the rows do not have the types of their TABLE_MAP, or the "
        "binlog is damaged; check it with mysqlbinlog --verify-binlog-checksum, and start from a new snapshot"
    )


def _bad_cell(where: str, column: BinlogColumn, error: Exception) -> BinlogError:
    return BinlogError(
        f"{where}: column {column.name} has an invalid value: {error}. Leave the column out with "
        "column.exclude.list, or correct the row in the database and start from a new snapshot"
    )
