"""Shell: a whole cleaning pass in the calling thread, for tools, tests and simulations."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.server.storage.cleaner.cleanable import CleanableLog
from barnabas.server.storage.cleaner.cleaning import CleaningPass, EngineFactory
from barnabas.server.storage.cleaner.job import plan_cleaning
from barnabas.server.storage.cleaner.keys import PlainKeys
from barnabas.server.storage.cleaner.task import CleanerConfig, GroupCleaned, PassDone
from barnabas.server.storage.log import Log


def clean(
    log: Log,
    candidate: CleanableLog,
    *,
    now_ms: int,
    secret: tuple[int, int],
    config: CleanerConfig,
    engine: EngineFactory = PlainKeys,
    take: Callable[[int], None] = lambda size: None,
) -> PassDone:
    """Compact the log as `candidate` states. Raises CleaningError, CorruptBatchError, StorageError.

    If a pass fails, the groups that were completed before stay in place, and the log is intact.
    """
    job = plan_cleaning(log, candidate, now_ms=now_ms, secret=secret, config=config)
    try:
        for step in CleaningPass(log.fs, job.task, engine=engine, take=take).run():
            if isinstance(step, GroupCleaned):
                if step.changed:
                    job.stage(step)
                    job.adopt(step, now_ms=now_ms)
                    job.settle()
            else:
                job.finish(step.end_offset)
                return step
        raise AssertionError("a pass ends with PassDone")
    except BaseException:  # any error: the log must not wait for the end of this pass
        job.abort()
        raise
