"""Shell: `python -m bench.attacks.server serve ...`: a broker that measures the steps of its requests in CPU time.

On a busy machine the elapsed time of a step is mostly the time of other processes.
"""

from __future__ import annotations

import time

from barnabas.cli.app import main
from barnabas.core.telemetry.loop_watch import LoopWatch

if __name__ == "__main__":
    init = LoopWatch.__init__

    def with_cpu_clock(self: LoopWatch, metrics: object, clock: object, warn_ms: float) -> None:
        init(self, metrics, time.thread_time, warn_ms)  # type: ignore[arg-type]

    LoopWatch.__init__ = with_cpu_clock  # type: ignore[method-assign]
    main()
