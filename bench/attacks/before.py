"""Table: the worst latency of the bystander, in ms, before the broker was protected against an attack.

Measured when the attack was found, most of them on two cores that other processes used, too. BEFORE_CPU_MS is CPU time
of the longest turn of the event loop, because the machine was too busy to measure latencies. Attacks that were written
after the broker was protected are missing.
"""

from __future__ import annotations

from typing import Final

BEFORE_MS: Final[dict[str, int]] = {
    "unordered-timestamps": 181_112,
    "chain": 4_616,
    "compacted-topic": 5_696,
    "inflating": 22_389,
    "gzip-members": 2_087,
    "recompress-gzip": 1_309,
    "list-offsets": 202_673,
    "many-light": 25_880,
    "commit-million": 22_000,
    "regex": 6_600,
    "create-500": 2_300,
    "delete-2000": 1_300,
    "metadata-5000": 400,
    "largest-DeleteGroups": 8_862,
    "largest-DeleteRecords": 3_982,
    "largest-Produce": 909,
    "committers": 592,
    "tls-half": 413,
    "sasl-large": 264,
}
BEFORE_CPU_MS: Final[dict[str, int]] = {
    "largest-ShareFetch": 478,
    "largest-ConsumerGroupHeartbeat": 637,
    "largest-ShareGroupHeartbeat": 680,
    "rebalance-share": 806,
    "rebalance-uneven": 1_300,
}
