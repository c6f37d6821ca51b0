"""Shell: `kafka-server-stop`: shuts down cleanly (SIGTERM) the servers that this user runs on this machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from barnabas.cli.kafka.arguments import Parser, emit
from barnabas.cli.output import fail


def main() -> None:
    Parser("kafka-server-stop", "Stop the servers of this user on this machine.", bootstrap=False).parse_args()
    found = [pid for pid in _servers() if pid != os.getpid()]
    if not found:
        fail("No kafka server to stop")
    for pid in found:
        os.kill(pid, signal.SIGTERM)
        emit(f"stopping {pid}")


def _servers() -> list[int]:
    """The process ids of this user's processes whose command is `barnabas serve` (Linux: /proc)."""
    found = []
    for process_dir in Path("/proc").glob("[0-9]*"):
        try:
            words = (process_dir / "cmdline").read_bytes().split(b"\0")
            mine = process_dir.stat().st_uid == os.getuid()
        except OSError:
            continue
        if mine and b"serve" in words and any(w.endswith((b"barnabas", b"kafka-server-start")) for w in words):
            found.append(int(process_dir.name))
    return found
