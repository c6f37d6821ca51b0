"""Shell: the driver's part of copying: plans micro-batches, runs them as Spark jobs, and commits them.

    read the source's offsets -> plan -> a Spark job: a task per group of partitions -> commit -> report the offsets

A micro-batch is a job of its own, and not one of a streaming query, whose checkpoint would be a second record of
positions beside that of the target cluster (docs/adr/0020-mirror-micro-batches.md). So a copier can be started on any
host, and takes over from Kafka's MirrorMaker, or hands over to it, at any time. After an error the copier ends; a new
one begins at the positions that the target cluster has.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

from barnabas.core.errors import BarnabasError
from barnabas.core.telemetry import get_logger
from barnabas.spark.delivery.names import RUN_CHARACTERS
from barnabas.spark.mirror.copying.job_options import JobOptions, copy_job, parse_job_options
from barnabas.spark.mirror.copying.planner import CopyPlanner, CopyStep, divide
from barnabas.spark.mirror.copying.source import SourceClient
from barnabas.spark.mirror.copying.target import TargetClient, TargetOptions
from barnabas.spark.mirror.copying.values import CopyJob, CopyTask, PartitionCopied, TaskResult
from barnabas.spark.mirror.errors import MirrorError
from barnabas.spark.mirror.ports import CopiedRange, CopiedRanges, CopyPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger("barnabas.mirror")

WAITING_LOGGED_MS: Final = 60_000
"""How often it is logged that a partition waits for its target."""
STALLED_MS: Final = 120_000
"""How long micro-batches may copy nothing although the source has records."""
_PYTHON_ERROR: Final = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception): .+)$", re.MULTILINE)
COUNTS_MS: Final = 5_000
"""How often the partition counts of the target topics are requested."""


class SparkCopier:
    """Copies the records of one pair of clusters; see `ports.RecordCopier`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._copying: Copying | None = None
        self._thread: threading.Thread | None = None

    def start(self, plan: CopyPlan, on_copied: Callable[[CopiedRanges], None]) -> None:
        assert self._thread is None, "stop the copier before the next plan"
        copying = Copying(self._spark.sparkContext, plan, on_copied)
        try:
            copying.open()
        except BaseException:  # KeyboardInterrupt, too: the connections must be closed
            copying.close()
            raise
        self._copying = copying
        self._thread = threading.Thread(target=copying.run, name=f"mirror {plan.name}", daemon=True)
        self._thread.start()

    def failure(self) -> Exception | None:
        return None if self._copying is None else self._copying.failure

    def stop(self, timeout_s: float) -> None:
        copying, thread = self._copying, self._thread
        if copying is None or thread is None:
            return
        copying.stopping.set()
        thread.join(timeout_s)
        if thread.is_alive():
            copying.cancel()
            thread.join()
        self._copying = self._thread = None


class Copying:
    """A plan that is being carried out, in a thread of its own."""

    def __init__(self, context: Any, plan: CopyPlan, on_copied: Callable[[CopiedRanges], None]) -> None:
        self.failure: Exception | None = None
        self.stopping = threading.Event()
        self._context = context
        self._plan = plan
        self._on_copied = on_copied
        self._options: JobOptions = parse_job_options(plan)
        self._run_id = secrets.token_hex(RUN_CHARACTERS // 2)
        self._tasks_max = self._options.tasks_max or int(context.defaultParallelism)
        self._job: CopyJob = copy_job(plan, self._options, self._run_id, self._tasks_max)
        self._group = f"mirror {plan.name} {self._run_id}"
        self._opened = ExitStack()
        self._source: SourceClient
        self._target: TargetClient
        self._planner: CopyPlanner
        self._batch_id = 0
        self._counts: dict[str, int] = {}
        self._counts_ms: int | None = None
        self._logged_waiting_ms: int | None = None
        self._moved_ms = now_ms()
        self._has_orphans = False

    def open(self) -> None:
        """Connect, and take over from an earlier copier. Raises BarnabasError."""
        plan, options = self._plan, self._options
        self._source = SourceClient(self._job.source_settings, plan.topics)
        self._opened.callback(self._source.close)
        self._target = TargetClient(
            self._job.target_settings,
            TargetOptions(plan.source_alias, plan.offsets_topic, options.name, options.ledger, plan.transactional),
        )
        self._opened.callback(self._target.close)
        self._source.reach()
        self._batch_id = self._target.take_over()
        stored = self._target.stored()
        positions = stored.positions if plan.offsets_topic else plan.positions
        self._planner = CopyPlanner(
            plan.topics,
            positions,
            stored.topic_ids,
            target_ids=stored.target_ids,
            epochs=stored.epochs,
            start_at=options.start_at,
            fail_on_data_loss=plan.fail_on_data_loss,
        )

    def close(self) -> None:
        self._opened.close()

    def cancel(self) -> None:
        """Cancel the running micro-batch."""
        self._context.cancelJobGroup(self._group)

    def run(self) -> None:
        """Copy until `stopping` is set, or an error occurs, which is then in `failure`."""
        try:
            while not self.stopping.is_set():
                if not self._copy_more():
                    self.stopping.wait(self._options.trigger_interval_ms / 1000)
        except Exception as error:  # noqa: BLE001 - the root of the thread: what ends it is reported as the failure
            self.failure = error
            log.error("copying has ended", pair=self._plan.name, reason=str(error))
        finally:
            self.close()

    # -- one micro-batch ---------------------------------------------------------------------------------------------

    def _copy_more(self) -> bool:
        """Copy a micro-batch, if there are new records. Returns whether the position of a partition has moved."""
        now = now_ms()
        step = self._plan_step(now)
        if not step.ranges:
            self._moved_ms = now
            if step.besides:
                self._finish(step, [])
            return False
        if self._has_orphans:
            self._target.recover()
            self._has_orphans = False
        tasks = [
            CopyTask(self._job, self._batch_id, index, ranges)
            for index, ranges in enumerate(divide(step.ranges, self._tasks_max))
        ]
        results = self._run_job(tasks)
        self._has_orphans = any(result.attempt for result in results)
        return self._finish(step, results)

    def _plan_step(self, now: int) -> CopyStep:
        view = self._source.read_view(self._planner.positions, self._planner.epochs, now)
        if self._counts_ms is None or now - self._counts_ms >= COUNTS_MS:
            self._counts = self._target.partition_counts(self._plan.topics.values())
            self._counts_ms = now
        step = self._planner.plan(view, self._counts, now, self._target.topic_ids)
        for loss in step.losses:
            log.error("records are lost", pair=self._plan.name, reason=str(loss), records=loss.records)
        if step.waiting and (self._logged_waiting_ms is None or now - self._logged_waiting_ms >= WAITING_LOGGED_MS):
            self._logged_waiting_ms = now
            names = ", ".join(str(tp) for tp in step.waiting[:10])
            log.warning("source partitions wait until their target topics have them", partitions=names)
        return step

    def _run_job(self, tasks: Sequence[CopyTask]) -> list[TaskResult]:
        """Run the tasks in Spark, which repeats failed ones. Raises MirrorError if a task fails too often."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        from barnabas.spark.mirror.copying.task import copy_tasks

        context = self._context
        context.setJobGroup(self._group, f"mirror {self._plan.name}: micro-batch {self._batch_id}", True)
        try:
            results: list[TaskResult] = context.parallelize(tasks, len(tasks)).mapPartitions(copy_tasks).collect()
        except (Py4JJavaError, PySparkException) as error:
            raise MirrorError(
                f"a task of micro-batch {self._batch_id} of {self._plan.name} has failed: {task_error(str(error))}"
            ) from None
        return results

    def _finish(self, step: CopyStep, results: Sequence[TaskResult]) -> bool:
        """Commit, move the positions, and report the offsets. Returns whether a task has copied something."""
        parts = [part for result in results for part in result.partitions]
        starts = {wanted.partition: wanted.start for wanted in step.ranges}
        moved = [part for part in parts if part.next_upstream > starts[part.partition]]
        if any(part.out_of_range for part in parts):
            self._source.forget()
        self._check_progress(moved, step)
        if moved or step.besides:
            try:
                self._target.commit(self._batch_id, results, step.besides, step.epochs)
            except BarnabasError:
                with suppress(BarnabasError):  # the next copier aborts what is left open
                    self._target.abort(results)
                raise
            self._batch_id += 1
            self._planner.advance(moved, step.epochs)
        ends = {wanted.partition: wanted.end for wanted in step.ranges}
        ranges = [self._copied(part, max(ends[part.partition], part.next_upstream)) for part in moved]
        ranges += [
            CopiedRange(tp, (), offset, 0, 0, -1, offset, self._planner.take_lost(tp))
            for tp, offset in step.besides.positions.items()
            if tp not in {part.partition for part in moved}
        ]
        if ranges:
            self._on_copied(CopiedRanges(self._batch_id - 1, now_ms(), ranges))
        return bool(moved)

    def _copied(self, part: PartitionCopied, end: int) -> CopiedRange:
        return CopiedRange(
            part.partition,
            part.runs,
            part.next_upstream,
            part.records,
            part.bytes,
            part.newest_timestamp_ms,
            end,
            self._planner.take_lost(part.partition),
        )

    def _check_progress(self, moved: Sequence[PartitionCopied], step: CopyStep) -> None:
        """Raise MirrorError if nothing could be copied for too long."""
        now = now_ms()
        if moved or not step.ranges:
            self._moved_ms = now
        elif now - self._moved_ms >= STALLED_MS:
            wanted = step.ranges[0]
            raise MirrorError(
                f"nothing of {self._plan.name} could be copied for {STALLED_MS // 1000} s, though {wanted.partition}"
                f" has records up to offset {wanted.end} and {wanted.start} is the next one to copy. See whether the"
                " Spark executors reach the brokers of the source cluster under their advertised addresses"
            )


def task_error(text: str) -> str:
    """The one line of a Java exception's text that says most: the innermost Python error, else the first line."""
    found = _PYTHON_ERROR.findall(text)
    return str(found[-1]) if found else text.strip().partition("\n")[0]


def now_ms() -> int:
    return time.time_ns() // 1_000_000
