"""Shell: all pairs of a properties file, in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError
from barnabas.core.telemetry import get_logger
from barnabas.spark.mirror.config.values import MirrorConfig, PairConfig
from barnabas.spark.mirror.errors import MirrorConfigError, MirrorError
from barnabas.spark.mirror.ports import RecordCopier
from barnabas.spark.mirror.running.pair import PairRunner, PairStatus

log = get_logger("barnabas.mirror")

CopierFactory = Callable[[PairConfig], RecordCopier]
STOP_TIMEOUT_S: Final = 90.0


class MirrorService:
    """The pairs whose target is one of some clusters."""

    def __init__(
        self,
        config: MirrorConfig,
        targets: Sequence[str],
        new_copier: CopierFactory,
        clock: Clock | None = None,
    ) -> None:
        """All targets if `targets` is empty. Raises MirrorConfigError for an unknown one."""
        for target in targets:
            if target not in config.clusters:
                raise MirrorConfigError(f"there is no cluster {target}: the clusters are {', '.join(config.clusters)}")
        pairs = config.towards(targets)
        if not pairs:
            raise MirrorConfigError("no pair does anything: enable one, for example A->B.enabled=true")
        self.runners = [PairRunner(pair, new_copier(pair) if pair.enabled else None, clock) for pair in pairs]
        by_pair = {(runner.config.source, runner.config.target): runner for runner in self.runners}
        for runner in self.runners:
            own = runner.config
            opposite = config.pair(own.target, own.source)
            if opposite is not None:
                runner.oppose(opposite, by_pair.get((own.target, own.source)))
        self._errors: list[BaseException] = []
        self._limit: asyncio.Timeout | None = None
        for name, reason in config.unused:
            log.warning("a key has no effect", key=name, reason=reason)

    def stop(self) -> None:
        """Let `run` return when the current micro-batches are done, or after STOP_TIMEOUT_S."""
        for runner in self.runners:
            runner.stop()
        if self._limit is not None and self._limit.when() is None:
            self._limit.reschedule(asyncio.get_running_loop().time() + STOP_TIMEOUT_S)

    def status(self) -> list[PairStatus]:
        return [runner.status() for runner in self.runners]

    async def run(self) -> None:
        """Run all pairs until `stop` is called. The first error that ends a pair ends all of them, in order, and is
        raised. Raises MirrorError if the pairs do not stop in time."""
        try:
            async with asyncio.timeout(None) as self._limit, asyncio.TaskGroup() as tasks:
                for runner in self.runners:
                    tasks.create_task(self._run_pair(runner))
        except TimeoutError:
            raise MirrorError(
                f"the mirror did not stop within {STOP_TIMEOUT_S:g} s and was ended: a cluster does not answer. Nothing"
                " is lost: the next start goes on where the positions in the target cluster are"
            ) from None
        if self._errors:
            raise self._errors[0]

    async def _run_pair(self, runner: PairRunner) -> None:
        try:
            await runner.run()
        except Exception as error:  # noqa: BLE001 - the other pairs are stopped in order before it is raised
            log.error("a pair has failed", pair=runner.config.name, reason=str(first_error(error)))
            self._errors.append(first_error(error))
            self.stop()


def first_error(error: BaseException) -> BaseException:
    """The error itself, or the first one in a group of errors; errors of this project come first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    found = [first_error(inner) for inner in error.exceptions]
    return next((inner for inner in found if isinstance(inner, BarnabasError)), found[0])
