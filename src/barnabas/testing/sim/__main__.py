"""Shell: `python -m barnabas.testing.sim --seeds 200`, or `--seed 7` to replay one run and read its history."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from barnabas.testing.sim import faults, torture
from barnabas.testing.sim.cluster import fault_context, storm
from barnabas.testing.sim.mirroring import faults as link_faults
from barnabas.testing.sim.mirroring import scenario as links
from barnabas.testing.sim.outcome import ScenarioResult
from barnabas.testing.sim.world import World


@dataclass(frozen=True, slots=True)
class ScenarioCommand:
    """A scenario of the command line: its function, its default duration, and its menus of faults."""

    run: Callable[..., ScenarioResult]
    seconds: float
    menus: Any


SCENARIOS: Final = {
    "cluster": ScenarioCommand(storm.storm, storm.SECONDS, fault_context.ClusterFaultMenu),
    "links": ScenarioCommand(links.mirroring, links.SECONDS, link_faults.LinkFaultMenu),
    "node": ScenarioCommand(torture.torture, torture.SECONDS, faults.NodeFaultMenu),
}


@dataclass(frozen=True, slots=True)
class SeedRun:
    """One run of one seed; it can be sent to a worker process."""

    seed: int
    scenario: str
    seconds: float | None
    menu: str | None

    def run(self, world: World | None = None) -> ScenarioResult:
        found = SCENARIOS[self.scenario]
        menu = None if self.menu is None else found.menus(self.menu)
        return found.run(self.seed, seconds=self.seconds or found.seconds, menu=menu, world=world)


@dataclass(frozen=True, slots=True)
class FailedSeed:
    """A failed run: the kind of failure, and its message."""

    seed: int
    kind: str
    text: str


def main() -> int:
    """Returns the exit code: 0 if all runs succeeded, 1 if a run failed, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m barnabas.testing.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="number of runs, from --first on (50)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--seed", type=int, help="run only this seed, and print its history")
    parser.add_argument(
        "--scenario", choices=sorted(SCENARIOS), default="cluster", help="a cluster, two with links, or a node"
    )
    parser.add_argument("--seconds", type=float, help="simulated seconds with faults")
    parser.add_argument(
        "--menu",
        help="kinds of faults (default: drawn from the seed): kill, power, disk, blackout, unclean, retention, ...",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of worker processes (all cores)")
    parser.add_argument("--trace", type=Path, help="write the whole history of --seed to this file")
    arguments = parser.parse_args()
    menus = [menu.value for menu in SCENARIOS[arguments.scenario].menus]
    if arguments.menu is not None and arguments.menu not in menus:
        parser.error(f"--menu {arguments.menu}: the menus of this scenario are {', '.join(menus)}")

    def job(seed: int) -> SeedRun:
        return SeedRun(seed, arguments.scenario, arguments.seconds, arguments.menu)

    if arguments.seed is not None:
        return _one(job(arguments.seed), arguments.trace)
    return _many([job(arguments.first + i) for i in range(arguments.seeds)], max(1, arguments.jobs))


def _one(job: SeedRun, trace: Path | None) -> int:
    world = World(job.seed)
    code = 0
    try:
        print(job.run(world))
    except Exception:  # noqa: BLE001 - any exception is the result of this run
        traceback.print_exc()
        code = 1
    if trace is not None:
        trace.write_text(world.trace.text(), encoding="utf-8")
        print(f"history: {trace}, digest {world.trace.digest()}")
    elif not code:
        print(world.trace.tail(200))
    return code


def _many(jobs: list[SeedRun], processes: int) -> int:
    began = time.perf_counter()
    simulated = cpu = 0.0
    failures: list[FailedSeed] = []
    for outcome in _results(jobs, processes):
        if isinstance(outcome, FailedSeed):
            failures.append(outcome)
            job = jobs[0]
            again = f"make sim SEED={outcome.seed}" + ("" if job.scenario == "cluster" else f" SCENARIO={job.scenario}")
            print(f"seed {outcome.seed}: {outcome.kind}: {outcome.text}\n    again: {again}", flush=True)
        else:
            simulated += outcome.simulated_s
            cpu += outcome.cpu_s
            print(outcome, flush=True)
    real = time.perf_counter() - began
    ratio = f"{simulated:.0f} s simulated in {cpu:.0f} s of one core: {simulated / max(cpu, 0.001):.0f} to 1"
    print(f"{len(jobs) - len(failures)} of {len(jobs)} seeds clean in {real:.0f} s; {ratio}")
    for failure in failures:
        print(f"  seed {failure.seed}: {failure.kind}: {failure.text.splitlines()[0][:160]}")
    return 1 if failures else 0


def _results(jobs: list[SeedRun], processes: int) -> Iterator[ScenarioResult | FailedSeed]:
    if processes == 1:
        yield from map(_result, jobs)
        return
    with ProcessPoolExecutor(processes) as pool:
        for done in as_completed([pool.submit(_result, job) for job in jobs]):
            yield done.result()


def _result(job: SeedRun) -> ScenarioResult | FailedSeed:
    try:
        return job.run()
    except Exception as error:  # noqa: BLE001 - any exception is the result of this seed; the other seeds still run
        return FailedSeed(job.seed, type(error).__name__, str(error) or repr(error))
    finally:
        if not gc.get_freeze_count():  # after the first run all modules are imported; later collections skip them
            gc.collect()
            gc.freeze()


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # so that sets of strings have the same order in a replay
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
