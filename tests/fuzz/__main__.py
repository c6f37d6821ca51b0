"""Shell: `python -m tests.fuzz [--seconds N] [--target NAME]`: fuzzes each target in a process of its own.

With `atheris` installed the fuzzing is guided by coverage; without it, inputs are mutated at random from the corpus. A
finding (an exception that is not a refusal, a second without an answer, memory over ten times the input) is kept in
`out/fuzz/` and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from types import FrameType

from tests.fuzz.targets import MEMORY_FACTOR, MEMORY_FLOOR, Target, targets

FINDINGS = Path("out/fuzz")
HANG_SECONDS = 1.0


class FindingError(Exception):
    """Something that must not happen, with the input that did it."""


def check(target: Target, data: bytes, *, measure_memory: bool) -> None:
    """Runs one input. Raises FindingError; keeps the input on disk."""

    def on_hang(_signal: int, _frame: FrameType | None) -> None:
        raise FindingError(f"no answer within {HANG_SECONDS} s")

    signal.signal(signal.SIGALRM, on_hang)
    signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
    if measure_memory:
        tracemalloc.start()
    try:
        target.run(data)
        if measure_memory and tracemalloc.get_traced_memory()[1] > len(data) * MEMORY_FACTOR + MEMORY_FLOOR:
            raise FindingError(f"{tracemalloc.get_traced_memory()[1]:,} bytes allocated for {len(data):,}")
    except Exception as error:
        FINDINGS.mkdir(parents=True, exist_ok=True)
        path = FINDINGS / f"{target.name}-{abs(hash(data)):x}.bin"
        path.write_bytes(data)
        raise FindingError(f"{target.name}: {type(error).__name__}: {error} (input kept in {path})") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if measure_memory:
            tracemalloc.stop()


def mutate(rng: random.Random, corpus: tuple[bytes, ...]) -> bytes:
    """One valid input, damaged in one to four places: flips, cuts, insertions, hostile lengths, splices."""
    data = bytearray(rng.choice(corpus))
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(data))
        match rng.randrange(6):
            case 0 if data:
                data[at % len(data)] = rng.randrange(256)
            case 1:
                del data[at:]
            case 2:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            case 3:
                hostile = (0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, 0x00FFFFFF, 0xFFFFFFFE, 0)
                data[at : at + 4] = rng.choice(hostile).to_bytes(4, "big")
            case 4:
                data[at:at] = b"\xff" * rng.randint(1, 10)
            case _:
                data[at:] = rng.choice(corpus)[at:]
    return bytes(data)


def fuzz_randomly(target: Target, seconds: float, seed: int) -> int:
    """Mutations for `seconds`; gives how many were run. Raises FindingError."""
    rng = random.Random(seed)
    for data in target.corpus:
        check(target, data, measure_memory=False)
    deadline = time.monotonic() + seconds
    runs = 0
    while time.monotonic() < deadline:
        check(target, mutate(rng, target.corpus), measure_memory=runs % 20 == 0)
        runs += 1
    return runs


def fuzz_guided(target: Target, seconds: int) -> None:
    """Hands over to atheris, which ends the process."""
    import atheris

    corpus = FINDINGS / "corpus" / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(target.corpus):
        (corpus / f"seed-{number}").write_bytes(data)
    atheris.instrument_all()
    options = [sys.argv[0], f"-max_total_time={seconds}", "-max_len=4096", "-verbosity=0", str(corpus)]
    atheris.Setup(options, lambda data: check(target, data, measure_memory=False))
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=int, default=10, help="for each target, and each way of fuzzing")
    parser.add_argument("--target", help="only this one, in this process")
    parser.add_argument("--guided", action="store_true", help="with --target: by atheris")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    every = targets()
    if options.target:
        target = every[options.target]
        if options.guided:
            fuzz_guided(target, options.seconds)
        runs = fuzz_randomly(target, options.seconds, options.seed)
        print(f"{target.name}: {runs:,} mutations, no finding")
        return 0
    failed = 0
    for name in every:
        command = [sys.executable, "-m", "tests.fuzz", "--target", name, "--seconds", str(options.seconds)]
        failed |= subprocess.run([*command, "--seed", str(options.seed)]).returncode
        if _has_atheris():
            failed |= subprocess.run([*command, "--guided"]).returncode
            print(f"{name}: {options.seconds} s guided by coverage, done")
    return 1 if failed else 0


def _has_atheris() -> bool:
    from importlib.util import find_spec

    return find_spec("atheris") is not None


if __name__ == "__main__":
    sys.exit(main())
