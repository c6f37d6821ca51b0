"""Shell: Apache Kafka's `StreamsEosTest` (echo, min, sum, max and count of numbers), driven as Kafka drives it.

    generator --> data --> Streams instances (exactly_once_v2) --> echo, min, sum, repartition --> max, cnt
                                                                    verifier: computes them anew, and compares

The recipe is `tests/kafkatest/tests/streams/streams_eos_test.py`; what is new is that the broker is killed, too. The
program asks for three replicas of its internal topics, so they are made before it starts, with one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.jars import streams_eos_classpath
from tests.interop.streams.process import TalkingProcess

PARTITIONS = 5
TOPICS = ("data", "echo", "min", "sum", "repartition", "max", "cnt")
STORES = 30
STARTUP_S = 120.0
RUNNING, PROCESSED = r"StateChange: REBALANCING -> RUNNING", r"processed \d+ records from topic"


class Broker(Protocol):
    """A broker that can be killed and started again on its data and its port."""

    bootstrap_servers: str

    def start(self) -> None: ...

    def kill(self) -> None: ...


class StreamsEos:
    """The programs of one run, all in one folder."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self._running: list[TalkingProcess] = []

    def create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        topics = [NewTopic(name, PARTITIONS, 1) for name in TOPICS]
        compacted = {"cleanup.policy": "compact"}
        topics += [
            NewTopic(f"EosTest-KSTREAM-AGGREGATE-STATE-STORE-{n:010d}-changelog", PARTITIONS, 1, config=compacted)
            for n in range(STORES)
        ]
        for future in admin.create_topics(topics).values():
            future.result(60)

    def run(self, command: str, name: str) -> TalkingProcess:
        """Start `command` of the program; `name` has its own state folder and log."""
        settings = self.folder / f"{name}.properties"
        settings.write_text(
            f"bootstrap.servers={self.broker.bootstrap_servers}\n"
            f"state.dir={self.folder / name}\n"
            "processing.guarantee=exactly_once_v2\n"
            "acceptable.recovery.lag=9223372036854775807\n"
            "session.timeout.ms=10000\n"
        )
        logging = self.folder / "simplelogger.properties"
        flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        main = "org.apache.kafka.streams.tests.StreamsEosTest"
        java = ["java", *flags, "-cp", f"{streams_eos_classpath()}:{logging.parent}", main, str(settings), command]
        process = TalkingProcess(java, self.folder / f"{name}.log.txt")
        self._running.append(process)
        return process

    def close(self) -> None:
        for process in self._running:
            if process.process.poll() is None:
                process.kill()


def wait_working(instance: TalkingProcess, since: int = 0, timeout_s: float = STARTUP_S) -> int:
    """Until an instance has its tasks and works on them."""
    return instance.wait_for(PROCESSED, timeout_s, instance.wait_for(RUNNING, timeout_s, since))
