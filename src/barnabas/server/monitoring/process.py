"""Shell: the metrics of the process: processor time, memory, the share of time in which the event loop is idle."""

from __future__ import annotations

import os
import resource
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from barnabas.core.telemetry.exposition import Exposition, label_text

_WINDOW_S: Final = 60.0
_STARTED: Final = time.time()
_STATM: Final = "/proc/self/statm"


class LoopIdleness:
    """The share of the last minute in which the event loop's thread used no processor. Each page of metrics adds a
    reading, so the share is that of the time since a page about a minute ago."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, float]] = deque([(time.monotonic(), time.thread_time())])

    def share(self) -> float:
        """From 0, the loop is always busy, to 1. Call this on the loop's thread."""
        now, used = time.monotonic(), time.thread_time()
        readings = self._readings
        while len(readings) > 1 and now - readings[1][0] >= _WINDOW_S:
            readings.popleft()
        began, used_before = readings[0]
        if now - readings[-1][0] >= 1.0:
            readings.append((now, used))
        elapsed = now - began
        return 1.0 if elapsed <= 0 else round(min(max(1.0 - (used - used_before) / elapsed, 0.0), 1.0), 4)


class ProcessMonitor:
    """Reads the process. `info` has the labels of `barnabas_info`."""

    def __init__(self, info: Callable[[], Mapping[str, str]]) -> None:
        self._info = info
        self._idleness = LoopIdleness()

    def collect(self, page: Exposition) -> Iterator[None]:
        """Add the samples."""
        page.family("barnabas_info").add(1, label_text(**self._info()))
        idle = self._idleness.share()
        page.family("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent").add(idle)
        page.family("kafka_network_socketserver_networkprocessoravgidle_percent").add(idle)
        times = os.times()
        page.family("process_cpu_seconds_total").add(round(times.user + times.system, 3))
        page.family("process_resident_memory_bytes").add(_resident_bytes())
        page.family("process_start_time_seconds").add(round(_STARTED, 3))
        yield


def _resident_bytes() -> int:
    try:
        with open(_STATM, encoding="ascii") as statm:  # noqa: PTH123 - pathlib takes milliseconds of every start
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux: the peak, in bytes or in KiB
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if os.uname().sysname == "Darwin" else peak * 1024
