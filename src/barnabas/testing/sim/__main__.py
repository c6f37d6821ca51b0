"""Shell: `python -m barnabas.testing.sim --seeds 200`, or `--seed 7` to replay one run and read its history."""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from pathlib import Path

from barnabas.testing.sim.faults import Menu
from barnabas.testing.sim.torture import SECONDS, torture
from barnabas.testing.sim.world import World


def main() -> int:
    """Exit code 0: all went well; 1: a run failed."""
    parser = argparse.ArgumentParser(prog="python -m barnabas.testing.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="how many runs, from --first on (50)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--seed", type=int, help="only this one; prints its history")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"simulated seconds with faults ({SECONDS:g})")
    parser.add_argument("--menu", choices=[menu.value for menu in Menu], help="what may go wrong (drawn from the seed)")
    parser.add_argument("--trace", type=Path, help="write the whole history of --seed to this file")
    arguments = parser.parse_args()
    menu = Menu(arguments.menu) if arguments.menu else None
    if arguments.seed is not None:
        return _one(arguments.seed, arguments.seconds, menu, arguments.trace)
    return _many(range(arguments.first, arguments.first + arguments.seeds), arguments.seconds, menu)


def _one(seed: int, seconds: float, menu: Menu | None, trace: Path | None) -> int:
    world = World(seed)
    code = 0
    try:
        print(torture(seed, seconds=seconds, menu=menu, world=world))
    except Exception:  # noqa: BLE001 - whatever it is, it is this run's result
        traceback.print_exc()
        code = 1
    if trace is not None:
        trace.write_text(world.trace.text(), encoding="utf-8")
        print(f"history: {trace}, digest {world.trace.digest()}")
    elif not code:
        print(world.trace.tail(200))
    return code


def _many(seeds: range, seconds: float, menu: Menu | None) -> int:
    began = time.perf_counter()
    simulated = 0.0
    failed: dict[int, str] = {}
    for seed in seeds:
        try:
            outcome = torture(seed, seconds=seconds, menu=menu)
        except Exception as error:  # noqa: BLE001 - the other seeds are run all the same
            failed[seed] = type(error).__name__
            print(f"seed {seed}: {type(error).__name__}: {error}\n    again: make sim SEED={seed}", flush=True)
            continue
        simulated += outcome.simulated_s
        print(outcome, flush=True)
    real = time.perf_counter() - began
    ratio = f"{simulated:.0f} s simulated in {real:.0f} s: {simulated / real:.0f} to 1"
    print(f"{len(seeds) - len(failed)} of {len(seeds)} seeds clean; {ratio}")
    for seed, kind in failed.items():
        print(f"  seed {seed}: {kind}")
    return 1 if failed else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # so that even a set of strings replays in the same order
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
