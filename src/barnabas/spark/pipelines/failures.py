"""Table: what the failure of a flow means, from the text of Spark's exception."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

_PLAN_CHANGED: Final = (
    (
        r"There are \[?\d+\]? sources? in the checkpoint offsets and now there (?:are|is)",
        "its number of sources changed",
    ),
    (r"STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE", "the columns that it groups or joins by changed"),
    (r"STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE", "the columns in its state changed"),
    (r"Provided schema doesn't match to the schema for existing state", "the columns in its state changed"),
    (r"STREAMING_STATEFUL_OPERATOR_(?:NOT_MATCH|MISSING|REMOVED|\w*)", "its stateful operators changed"),
    (
        r"STATE_STORE_(?:UNSUPPORTED_OPERATION|STATE_SCHEMA|CANNOT_LOAD|INVALID_\w*SCHEMA)\w*",
        "its state has another form",
    ),
    (r"INCOMPATIBLE_STATEFUL_OPERATOR|StateSchemaCompatib", "its stateful operators changed"),
    (r"detected a change in the number of shuffle partitions", "its number of shuffle partitions changed"),
    (r"TRANSFORM_WITH_STATE_\w*|STATEFUL_PROCESSOR_\w*", "its stateful processor changed"),
)
"""Spark's texts for a query that cannot continue from its checkpoint, and what they mean."""

_FINAL_OF_SPARK: Final = (
    r"AnalysisException|\[(?:UNRESOLVED_|DATATYPE_MISMATCH|TABLE_OR_VIEW_NOT_FOUND|PARSE_SYNTAX)",
    r"STREAMING_OUTPUT_MODE",
)
"""Spark's texts of failures of which another attempt would be no better."""

FINAL: Final[frozenset[str]] = frozenset(
    {
        # the options of a query, a connector or a pipeline
        "OptionError", "ConfigError", "ArgumentTypeError", "ConfigProviderError", "JavaNotFoundError",
        "ConverterConfigError", "TransformConfigError", "MirrorConfigError",
        "PipelineError", "SpecError", "DefinitionError", "GraphError", "PlanChangedError", "FlowFailedError",
        "AlreadyRunningError", "BatchConflictError",
        # the set-up of a source, and the state that it reads from
        "CaptureError", "PolledTableError", "ServerSetupError", "SlotError", "SnapshotError",
        "LostPositionError", "SlotLostError", "HistoryLostError", "PositionError", "FileReadError", "LakeReadError",
        # records, rows and changes that cannot be read, or that are gone
        "RecordError", "DataLossError", "ChangeEventError", "EventError", "EventLimitError", "ChangeOrderError",
        "PgoutputError", "PostgresValueError", "PolledValueError", "UnsupportedBinlogError", "BinlogLimitError",
        "BinlogPurgedError", "MirrorDataLossError", "MirrorRecordError",
        # records and rows that cannot be converted or written
        "ConverterError", "ConverterDataError", "ConverterLimitError", "TransformError", "TransformDataError",
        "TransformPlanError", "SinkError", "DatabaseSinkError", "RefusedRowsError", "FileWriteError", "LakeError",
    }
)  # fmt: skip
"""The errors of configuration and of data, by their classes: another attempt would be no better."""

RETRIED: Final[frozenset[str]] = frozenset(
    {
        # an outage of a database, a web service, a registry, a broker or a storage
        "ConnectionLostError", "ServerConnectionError", "DatabaseUnreachableError", "HttpUnavailableError",
        "ConverterRegistryError", "RegistryUnreachableError", "StagingError", "SegmentsUnavailableError",
        "WrongDirectoryError", "SegmentsReplacedError", "BrokerUnreachableError", "BootstrapError",
        "RequestTimeoutError", "DeliveryTimeoutError", "DeliveryFailedError", "BufferFullError",
        "TransactionAbortedError", "StoreUnavailableError", "LakeUnavailableError", "TimeoutError", "ConnectionError",
        "ConnectionRefusedError", "ConnectionResetError", "OSError", "KafkaError",
        # another session, transaction or driver is in the way at this moment
        "ServerBehindError", "ServerNotReadyError",
        "DatabaseConflictError", "DatabaseLockedError", "LockedError", "SlotInUseError", "LakeConflictError",
        # a new start of the query repeats the micro-batch, ends what an earlier run has left open, or reads a snapshot
        "NewStartError", "DeliveryError", "RecoveryError", "BinlogError", "MirrorError",
        # a new start of the query reads with the columns or the schema of that moment
        "TableChangedError", "SchemaChangedError", "NoTableError",
        # what the server says may be about this moment: too many connections, a deadlock, a full disk
        "SparkSourceError", "PostgresError", "MysqlSourceError", "PollingError",
    }
)  # fmt: skip
"""The errors after which another attempt may be better, by their classes. So is every error that is in neither set."""

_PYTHON_ERROR: Final = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
_ERROR_NAME: Final = re.compile(r"\b([A-Z]\w*Error): ")
"""Also inside of a line, as in `PicklingError: Could not serialize object: SinkError: ...`."""
_SPARK_ERROR: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ((?:(?!\[[A-Z][A-Z0-9_.]+\]).)*)")
_WRAPPERS: Final = ("STREAM_FAILED", "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR", "PYTHON_DATA_SOURCE_ERROR")


class Cause(Enum):
    """Why a flow has failed, which decides how often it is started again."""

    FINAL = "final"
    """Its definition, its configuration or its data: another attempt would be no better."""
    ERROR = "error"
    """An error that may come again, such as one of the user's functions."""
    OUTAGE = "outage"
    """A server that the flow needs, which will be there again."""
    STARVED = "starved"
    """The machine was too busy to start a Python process within the ten seconds that Spark allows."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a flow: one line about it, and why it has failed."""

    summary: str
    cause: Cause
    plan_change: str | None = None

    @property
    def is_final(self) -> bool:
        return self.cause is Cause.FINAL


def classify(text: str) -> Failure:
    """Classify the text of an exception that a query or the start of a query has raised."""
    summary = summarize(text)
    for pattern, meaning in _PLAN_CHANGED:
        if re.search(pattern, text):
            return Failure(summary, Cause.FINAL, meaning)
    known = [name for name in _ERROR_NAME.findall(text) if name in FINAL or name in RETRIED]
    if known:  # the last one is the outermost: Python prints the causes of an error before it
        is_final = known[-1] in FINAL
    else:
        is_final = any(re.search(pattern, text) for pattern in _FINAL_OF_SPARK)
    if is_final:
        return Failure(summary, Cause.FINAL)
    if "Python worker failed to connect back" in text:
        return Failure(summary, Cause.STARVED)
    return Failure(summary, Cause.OUTAGE if known else Cause.ERROR)


def summarize(text: str) -> str:
    """The one line of an exception's text that says most: the innermost Python error, else Spark's own message."""
    python = _PYTHON_ERROR.findall(text)
    if python:
        name, message = python[-1]
        return f"{name}: {message}".strip()
    for condition, message in reversed(_SPARK_ERROR.findall(text)):
        if condition not in _WRAPPERS:
            return f"[{condition}] {message}".strip()
    return text.strip().splitlines()[0] if text.strip() else "unknown error"
