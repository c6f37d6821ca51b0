"""Shell: `python -m bench.soak.server REPORT serve ...`: a broker that counts its objects on SIGUSR1.

The counts go to the file REPORT: the objects by type, as the garbage collector knows them, the tasks of the event
loop, the open descriptors and the resident memory. Everything else is `barnabas serve`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

from barnabas.cli.app import main
from barnabas.server.node.server import Node

_TYPES_MAX = 60
"""So many of the most frequent types are reported."""


def count_objects() -> dict[str, object]:
    """The figures of this process. The garbage collector runs first, so that only reachable objects are counted."""
    gc.collect()
    types = Counter(f"{type(found).__module__}.{type(found).__qualname__}" for found in gc.get_objects())
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "memory": pages * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - names only
        "tasks": len(asyncio.all_tasks()),
        "objects": sum(types.values()),
        "types": dict(types.most_common(_TYPES_MAX)),
    }


def _report_on_signal(path: Path) -> None:
    """Write the counts whenever SIGUSR1 arrives, once the node runs."""
    run = Node.run

    async def run_and_report(self: Node, *arguments: object) -> None:
        def report() -> None:
            written = path.with_suffix(".new")
            written.write_text(json.dumps(count_objects()))
            written.replace(path)

        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, report)
        await run(self, *arguments)  # type: ignore[arg-type]

    Node.run = run_and_report  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    _report_on_signal(Path(sys.argv.pop(1)))
    main()
