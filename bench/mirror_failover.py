"""Shell: how long a cluster link needs from the command to the first write that its target accepts.

The source has been killed before. A producer tries to write all the time; `barnabas links failover` runs as a command,
so that the time includes the start of its process.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Final

from barnabas.client.blocking_producer import Producer
from barnabas.core.errors import BarnabasError
from bench.mirror_engines import LINK

PAUSE_S: Final = 0.005
LIMIT_S: Final = 60.0


def failover_ms(target: str, topic: str) -> float:
    """Milliseconds from the start of the command to the acknowledgement of the first record."""
    accepted = threading.Event()
    times: list[float] = []
    writer = threading.Thread(target=_write, args=(target, topic, accepted, times), daemon=True)
    writer.start()
    began = time.monotonic()
    command = [sys.executable, "-m", "barnabas", "links", "failover", LINK, "--yes", "--bootstrap-server", target]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S)
    if not accepted.wait(LIMIT_S):
        raise SystemExit(f"{topic} takes no writes after the failover")
    writer.join()
    return (times[0] - began) * 1000


def _write(target: str, topic: str, accepted: threading.Event, times: list[float]) -> None:
    limit = time.monotonic() + LIMIT_S
    with Producer({"bootstrap.servers": target, "linger.ms": 0}) as producer:
        while time.monotonic() < limit:
            try:
                producer.send(topic, b"after", partition=0).result(LIMIT_S)
            except BarnabasError:
                time.sleep(PAUSE_S)  # between two attempts
                continue
            times.append(time.monotonic())
            accepted.set()
            return
