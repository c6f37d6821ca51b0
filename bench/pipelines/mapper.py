"""Shell: the mapping of the latency benchmark: `python -m bench.pipelines.mapper SERVERS INPUT OUTPUT`."""

from __future__ import annotations

import sys

import uvloop

from barnabas.stream import ConsumerRecord, ProducerRecord, exactly_once


def main(servers: str, source: str, target: str) -> None:
    @exactly_once(source, group_id=f"mapper-{target}", bootstrap_servers=servers)
    def shout(record: ConsumerRecord[bytes, bytes]) -> ProducerRecord:
        return ProducerRecord(target, record.value.upper(), record.key)

    print("running", flush=True)
    uvloop.run(shout.run())


if __name__ == "__main__":
    main(*sys.argv[1:])
