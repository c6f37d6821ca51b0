"""A read-process-write application on `barnabas.stream`, made to be killed: copies a topic exactly once.

python -m tests.system.transactions.stream_copier BOOTSTRAP INPUT OUTPUT GROUP
"""

from __future__ import annotations

import asyncio
import sys

from barnabas.stream import ConsumerRecord, ProducerRecord, exactly_once


def main(bootstrap: str, source: str, target: str, group: str) -> None:
    settings = {"bootstrap_servers": bootstrap, "max_poll_records": 50, "session_timeout_ms": 6_000}

    @exactly_once(source, group_id=group, instance="1", **settings)
    def copy(record: ConsumerRecord[bytes, bytes]) -> ProducerRecord:
        return ProducerRecord(target, record.value, record.key, partition=record.partition)

    asyncio.run(copy.run())


if __name__ == "__main__":
    main(*sys.argv[1:])
