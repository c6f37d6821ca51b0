"""Faults at named points of the exactly-once sink, in whichever process of Spark reaches the point.

The orchestrator arms one fault at a time: the file `armed` in the fault folder has its point and its action. The first
process that reaches the point renames the file, which only one can do, and then acts.

    points    `begin`, `hand_over` (tasks); `acquire`, `write`, `standing`, `commit`, `returned` (driver), each with
              `before` or `after`
    actions   raise, exit (of the Python process), jvm, driver and broker (kill -9), sleep
"""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barnabas.client.producer.producer import AsyncProducer
from barnabas.spark.delivery.kafka_ledger import KafkaLedger
from barnabas.spark.delivery.kafka_transactions import KafkaTransactions
from barnabas.spark.sink.tasks import TransactionalWriter
from barnabas.spark.sink.writer import StreamWriter, stream_writer

TASK_POINTS = ("begin:before", "begin:after", "hand_over:before", "hand_over:after")
DRIVER_POINTS = (
    "acquire:after",
    "write:before",
    "write:after",
    "standing:after",
    "commit:before",
    "commit:after",
    "returned:after",
)
SLEEP_S = 6.0

_METHODS: dict[str, tuple[type, str]] = {
    "begin": (TransactionalWriter, "begin"),
    "hand_over": (AsyncProducer, "hand_over_transaction"),
    "acquire": (KafkaLedger, "acquire"),
    "write": (KafkaLedger, "write"),
    "standing": (KafkaTransactions, "standing"),
    "commit": (KafkaTransactions, "commit"),
}

_folder: Path | None = None


class InjectedError(Exception):
    """The fault `raise`."""


def install(folder: str) -> None:
    """Wrap the methods of the points, once in a process."""
    global _folder
    first = _folder is None
    _folder = Path(folder)
    if first:
        for point, (kind, method) in _METHODS.items():
            setattr(kind, method, _wrapped(point, getattr(kind, method)))


def _wrapped(point: str, original: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*arguments: Any, **keywords: Any) -> Any:
        if point == "begin":
            _note_attempt()
        reach(f"{point}:before")
        result = await original(*arguments, **keywords)
        reach(f"{point}:after")
        return result

    return call


def _note_attempt() -> None:
    """Leave a file for an attempt of a task that is not its first one: after a fault, or because of speculation."""
    from pyspark import TaskContext  # a process of the driver has none

    task = TaskContext.get()
    if task is not None and task.attemptNumber():
        assert _folder is not None
        (_folder / f"attempt-{task.taskAttemptId()}-{uuid.uuid4().hex}").touch()


def reach(point: str) -> None:
    """Act if the armed fault is at this point."""
    assert _folder is not None
    try:
        armed = json.loads((_folder / "armed").read_text())
    except (OSError, ValueError):
        return
    if armed["point"] != point:
        return
    fired = _folder / f"fired-{uuid.uuid4().hex}"
    try:
        (_folder / "armed").rename(fired)
    except OSError:
        return  # another process was faster
    _act(armed["action"])


def _act(action: str) -> None:
    assert _folder is not None
    match action:
        case "raise":
            raise InjectedError
        case "exit":
            os._exit(7)
        case "sleep":
            time.sleep(SLEEP_S)  # a straggler, of which Spark starts a copy
        case "jvm" | "driver" | "broker":
            pids = [int(pid) for pid in (_folder / f"{action}.pid").read_text().split()]
            os.kill(pids[time.monotonic_ns() % len(pids)], signal.SIGKILL)


class FaultyStreamWriter(StreamWriter):
    """The production writer; in each process to which Spark passes it, the points are installed."""

    fault_folder = ""

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        install(self.fault_folder)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's own name
        super().commit(messages, batchId)
        reach("returned:after")


def faulty_stream_writer(options: dict[str, str], schema: Any, overwrite: bool) -> FaultyStreamWriter:
    folder = options.pop("spark.faults")
    install(folder)
    made = stream_writer(options, schema, overwrite)
    writer = FaultyStreamWriter(made._options, made._layout)
    writer.fault_folder = folder
    return writer
