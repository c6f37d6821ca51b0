"""Shell: the readers that Spark calls: the lines of a text file, and a directory of Avro files.

    text    offset {"position": bytes, "digest": hex}: complete lines up to here are read. Lines may only be appended to
            the file. The digest is that of the bytes before the position, by which another file of the name is noticed
    Avro    offset {"time": ns, "names": [...], "count": n, "sum": n}: files up to this time of modification are read;
            at that time itself, those of these names. `count` is the number of all files that are read, `sum` a
            checksum of their paths, times and sizes

A file that appears with an older time than the offset, or takes the place of one that was read, would be missed;
`latestOffset` notices it by the count and the sum, and stops the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from barnabas.spark.connectors.files.errors import FileReadError
from barnabas.spark.connectors.files.formats import avro_columns, avro_schema_in, read_avro
from barnabas.spark.connectors.files.options import FileSourceOptions, parse_file_source
from barnabas.spark.connectors.files.planning import (
    LINE_COLUMNS,
    AvroOffset,
    DirectoryFile,
    files_after,
    line_batches,
    line_records,
    next_files,
)
from barnabas.spark.connectors.files.storage import FileDirectory
from barnabas.spark.connectors.files.textfile import TextFile
from barnabas.spark.heap import freeze_heap
from barnabas.spark.records.types import spark_ddl
from barnabas.spark.reporting import readable_errors

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TEXT_DDL: Final = "`value` string, `topic` string, `file` string, `position` bigint"
"""A line, the option topic, the file, and where the line begins in it."""
LINES_DDL: Final = (
    "topic string, key binary, value binary, headers array<struct<key:string,value:binary>>, timestamp timestamp"
)
"""A line as a record, with converters or transforms."""


@readable_errors
def file_schema(texts: Mapping[str, str]) -> str:
    """The columns of a query, as DDL. Raises OptionError and FileReadError."""
    options = parse_file_source(texts)
    if options.is_file:
        return TEXT_DDL if options.records is None else LINES_DDL
    return ", ".join(f"`{field.name.replace('`', '``')}` {spark_ddl(field.type)}" for field in _columns(options))


@readable_errors
def file_batch_reader(texts: Mapping[str, str], schema: StructType) -> FileBatchReader:
    return FileBatchReader(parse_file_source(texts), _arrow(schema))


@readable_errors
def file_stream_reader(texts: Mapping[str, str], schema: StructType) -> FileStreamReader:
    return FileStreamReader(parse_file_source(texts), _arrow(schema))


class LinesTask(InputPartition):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The lines from one position to another."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__(None)
        self.start = start
        self.end = end


class FileTask(InputPartition):  # type: ignore[misc]  # as above
    """One file of the directory."""

    def __init__(self, path: str) -> None:
        super().__init__(None)
        self.path = path


class _FileReader:
    """What both readers do in workers."""

    def __init__(self, options: FileSourceOptions, columns: Any) -> None:
        self._options = options
        self._columns = columns

    def _read(self, partition: InputPartition) -> Iterator[Any]:
        # If there is nothing to read, Spark still calls `read` once, with a partition object of its own.
        freeze_heap()
        if isinstance(partition, LinesTask):
            place = self._options.place
            content = TextFile(place).chunks(partition.start, partition.end)
            columns = self._columns if self._options.records is None else LINE_COLUMNS
            lines = line_batches(content, partition.start, place, self._options.topic, columns)
            yield from lines if self._options.records is None else line_records(lines, self._options.records)
        elif isinstance(partition, FileTask):
            directory = FileDirectory.open(self._options.place, self._options.storage)
            with directory.filesystem.open_input_file(directory.path(partition.path)) as file:
                yield from read_avro(file, self._columns, partition.path, _reader_schema(self._options))


class FileBatchReader(_FileReader, DataSourceReader):  # type: ignore[misc]  # as above
    """The reader of `spark.read`: all lines, or all files."""

    @readable_errors
    def partitions(self) -> list[InputPartition]:
        if self._options.is_file:
            end = TextFile(self._options.place).end_of_lines(0)
            return [LinesTask(0, end)] if end else []
        return [FileTask(file.path) for file in list_files(self._options)]

    @readable_errors
    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from self._read(partition)


class FileStreamReader(_FileReader, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The reader of `spark.readStream`."""

    def __init__(self, options: FileSourceOptions, columns: Any) -> None:
        super().__init__(options, columns)
        self._last: dict[str, Any] | None = None
        """The offset at which a query with Trigger.AvailableNow ends."""

    def initialOffset(self) -> dict[str, Any]:
        return {"position": 0} if self._options.is_file else AvroOffset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self._options.bytes_max)

    @readable_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        bytes_max = None if isinstance(limit, ReadAllAvailable) else self._options.bytes_max
        if self._options.is_file:
            position, file = int(start["position"]), TextFile(self._options.place)
            end = file.end_of_lines(position, bytes_max)
            file.check(start)
            end = end if self._last is None else min(end, int(self._last["position"]))
            return start if end == position else file.offset(end)
        files = list_files(self._options)
        if self._last is not None:
            files = [file for file in files if AvroOffset.from_json(self._last).has(file)]
        return next_files(files, AvroOffset.from_json(start), bytes_max).to_json()

    @readable_errors
    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self.latestOffset(self.initialOffset(), ReadAllAvailable())

    @readable_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if self._options.is_file:
            first, last = int(start["position"]), int(end["position"])
            TextFile(self._options.place).check(end)
            return [LinesTask(first, last)] if first < last else []
        begin, stop = AvroOffset.from_json(start), AvroOffset.from_json(end)
        return [FileTask(file.path) for file in files_after(list_files(self._options), begin, stop)]

    @readable_errors
    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from self._read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Files stay where they are."""

    def stop(self) -> None:
        """Nothing is open."""


def list_files(options: FileSourceOptions) -> list[DirectoryFile]:
    """The Avro files of the directory, at any depth, by their times and names. Names that begin with an underscore or
    a dot are left out, as by Spark."""
    from pyarrow.fs import FileSelector, FileType

    directory = FileDirectory.open(options.place, options.storage)
    selector = FileSelector(directory.root, allow_not_found=True, recursive=True)
    found = []
    for info in directory.filesystem.get_file_info(selector):
        path = info.path.removeprefix(directory.root).lstrip("/")
        hidden = any(name.startswith(("_", ".")) for name in path.split("/"))
        if info.type is FileType.File and path.endswith(".avro") and not hidden:
            found.append(DirectoryFile(info.mtime_ns, path, info.size))
    return sorted(found)


def _columns(options: FileSourceOptions) -> Any:
    """The columns of Avro files: of the given schema, or of the schema in the first file. Raises FileReadError."""
    schema = _reader_schema(options)
    if schema is None:
        files = list_files(options)
        if not files:
            raise FileReadError(
                f"{options.place} has no .avro file to take the columns from: give the schema as avro.schema"
            )
        directory = FileDirectory.open(options.place, options.storage)
        with directory.filesystem.open_input_file(directory.path(files[0].path)) as file:
            schema = avro_schema_in(file, files[0].path)
    return avro_columns(schema)


def _reader_schema(options: FileSourceOptions) -> Any | None:
    import json

    if options.avro_schema is None:
        return None
    try:
        return json.loads(options.avro_schema)
    except ValueError as error:
        raise FileReadError(f"avro.schema is not JSON: {error}") from error


def _arrow(schema: StructType) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
