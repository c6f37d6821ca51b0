"""Shell: `python -m bench.clients`: our clients beside confluent-kafka, kafka-python and aiokafka on one broker.

One run measures everybody, each load in a fresh process, clients in turn, on the same broker (ours, or any by
`--bootstrap`). Ratios compare what stood side by side. `--write docs/PERFORMANCE.md` puts the tables between the
`clients` markers of that file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from uuid import uuid4

from rich.console import Console
from rich.progress import Progress

from bench.client_loads import LOADS, Result
from bench.report import Sheet, number

BEGIN, END = "<!-- clients: begin -->", "<!-- clients: end -->"
PARTITIONS: Final = 3
SIZES: Final = (100, 1_000)
SLOW: Final = ("kafka-python", "aiokafka")
"""Get a quarter of the records: their rate needs no more to be seen."""
PURE: Final = ("kafka-python", "aiokafka")

Key = tuple[str, int, str]
Rounds = dict[Key, list[Result]]


def run_load(client: str, load: str, bootstrap: str, **arguments: object) -> Result:
    command = [sys.executable, "-m", "bench.client_loads", client, load, bootstrap, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{load} with {client} failed:\n{done.stderr[-3000:]}")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    from barnabas import Admin

    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(name, partitions, 1)


def measure(bootstrap: str, clients: list[str], rounds: int, records: int, progress: Progress) -> Rounds:
    """Every client, load and size, `rounds` times in turn."""
    results: Rounds = {}
    steps = sum(
        len([c for c in by_client if c in clients]) * (1 if load == "latency" else 2)
        for load, by_client in LOADS.items()
    )
    task = progress.add_task("clients", total=steps * rounds)
    sources = {}
    for size in SIZES:
        sources[size] = f"clients-source-{size}-{uuid4().hex[:6]}"
        create_topic(bootstrap, sources[size], PARTITIONS)
        count = records if size <= 100 else records // 3
        run_load("barnabas", "produce", bootstrap, topic=sources[size], size=size, count=count)
    for _ in range(rounds):
        for load, by_client in LOADS.items():
            for size in SIZES if load != "latency" else (100,):
                target = f"clients-{load}-{size}-{uuid4().hex[:6]}"
                create_topic(bootstrap, target, 1 if load == "latency" else PARTITIONS)
                for client in by_client:
                    if client not in clients:
                        continue
                    progress.update(task, description=f"{load} {size} B, {client}")
                    count = (records if size <= 100 else records // 3) // (4 if client in SLOW else 1)
                    arguments: dict[str, object] = {"topic": target, "size": size, "count": count}
                    if load == "latency":
                        arguments["count"] = 2_000
                    if load == "consume":
                        arguments |= {"topic": sources[size], "partitions": PARTITIONS}
                    results.setdefault((load, size, client), []).append(run_load(client, load, bootstrap, **arguments))
                    progress.advance(task)
    return results


def _median(results: list[Result], figure: str) -> float:
    return statistics.median(result[figure] for result in results)


def _against(results: Rounds, key: Key, peer: str, figure: str) -> str:
    """The median over the rounds of ours / theirs."""
    theirs = results.get((key[0], key[1], peer))
    if theirs is None or key[2] == peer:
        return ""
    pairs = list(zip(results[key], theirs, strict=True))
    median = statistics.median(ours[figure] / other[figure] for ours, other in pairs)
    if figure != "records":
        return f"{median:.2f}x"
    cheaper = statistics.median(other["cpu_us"] / ours["cpu_us"] for ours, other in pairs)
    return f"{median:.1f}x, {cheaper:.1f}x"


def sheets(results: Rounds, title: str) -> list[Sheet]:
    peers = [peer for peer in ("confluent-kafka", *PURE) if any(key[2] == peer for key in results)]
    rates, latencies = [], []
    for key in results:
        load, size, client = key
        if load == "latency":
            figures = [f"{number(_median(results[key], figure))} us" for figure in ("p50_us", "p99_us")]
            latencies.append((client, *figures, *(_against(results, key, peer, "p50_us") for peer in peers)))
        else:
            rate, cpu = _median(results[key], "records"), _median(results[key], "cpu_us")
            ratios = (_against(results, key, peer, "records") for peer in peers)
            rates.append((f"{load}, {size} B: {client}", f"{rate:,.0f}/s", f"{cpu:.2f} us", *ratios))
    heads = [f"/ {peer}" for peer in peers]
    return [
        Sheet(
            f"Records per second and the client's CPU per record; {title}. Beside a peer: how many times as many"
            " records, and how many times less CPU (where client and broker share busy cores, only the second is the"
            " client's own)",
            ("", "records", "CPU", *heads),
            rates,
        ),
        Sheet(
            "Latency of one acknowledged record of 100 B (acks=all, no linger); ratios of p50, below 1 is faster",
            ("", "p50", "p99", *heads),
            latencies,
        ),
    ]


def write(path: Path, found: list[Sheet]) -> None:
    """Between our markers; a file without them gets them at its end."""
    text = path.read_text() if path.exists() else ""
    tables = f"{BEGIN}\n\n" + "\n".join(sheet.markdown() for sheet in found) + f"\n{END}"
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if begun and not ended:
        raise SystemExit(f"{path} has the marker {BEGIN} but not {END}; nothing was written")
    path.write_text(before + tables + after if begun else f"{text.rstrip()}\n\n{tables}\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.clients", description=(__doc__ or "").split("\n")[0])
    everybody = list(dict.fromkeys(name for by_client in LOADS.values() for name in by_client))
    parser.add_argument("--bootstrap", help="a broker that runs; without it, ours is started")
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured (default 3)")
    parser.add_argument("--records", type=int, default=1_000_000, help="of 100 B; a third of it of 1 KB")
    parser.add_argument("--clients", default=";".join(everybody), help="names with semicolons between them")
    parser.add_argument("--write", type=Path, help="put the tables between the markers of this Markdown file")
    options = parser.parse_args()
    console = Console()
    with ExitStack() as stack:
        bootstrap = options.bootstrap
        if bootstrap is None:
            from barnabas.testing.process import BrokerProcess

            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-clients-")))
            bootstrap = stack.enter_context(BrokerProcess(folder / "data")).bootstrap_servers
        progress = stack.enter_context(Progress(console=console, transient=True))
        clients = [name.strip() for name in options.clients.split(";")]
        results = measure(bootstrap, clients, options.rounds, options.records, progress)
    broker = "Barnabas as the broker" if options.bootstrap is None else f"broker at {options.bootstrap}"
    title = f"median of {options.rounds} rounds, {os.cpu_count()} cores, Python {platform.python_version()}, {broker}"
    found = sheets(results, title)
    for sheet in found:
        console.print(sheet.render())
    if options.write:
        write(options.write, found)
        console.print(f"written to {options.write}")


if __name__ == "__main__":
    main()
