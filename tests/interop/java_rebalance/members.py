"""Shell: Java consumers of one group, each a process of its own, and one record of all that happens to them."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic

from barnabas.core.child_processes import start_child
from tests.interop.jars import clients_classpath
from tests.interop.java_rebalance.history import Event, committed, find_problems, read_up_to

SOURCE = Path(__file__).parents[1] / "java" / "GroupMember.java"
PATIENCE_S = 45.0
JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-Xshare:auto")
CLASSIC = {"group.protocol": "classic", "session.timeout.ms": "3000", "heartbeat.interval.ms": "300"}
CONSUMER = {"group.protocol": "consumer"}
COMMON = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "metadata.max.age.ms": "500",
    "fetch.max.wait.ms": "100",
    "max.poll.records": "40",
    "reconnect.backoff.max.ms": "200",
}

Owners = dict[str, frozenset[str]]
"""What each living member owns, by its name."""


@dataclass(frozen=True)
class Protocol:
    """How the members of a group are configured."""

    name: str
    config: Mapping[str, str]
    incremental: bool
    """Members keep what they own while others join and leave."""
    contiguous: bool = False
    """Each member's share is a range of partitions, by the order of the members."""

    @property
    def is_classic(self) -> bool:
        return self.config["group.protocol"] == "classic"


def _assignor(name: str) -> dict[str, str]:
    return {**CLASSIC, "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{name}"}


EAGER = Protocol("eager", _assignor("RangeAssignor"), incremental=False, contiguous=True)
COOPERATIVE = Protocol("cooperative", _assignor("CooperativeStickyAssignor"), incremental=True)
UNIFORM = Protocol("uniform", {**CONSUMER, "group.remote.assignor": "uniform"}, incremental=True)
RANGE = Protocol("range", {**CONSUMER, "group.remote.assignor": "range"}, incremental=True, contiguous=True)
PROTOCOLS = (EAGER, COOPERATIVE, UNIFORM, RANGE)


def compile_member(folder: Path) -> str:
    """The class path with the member's program in it."""
    command = ["javac", "-cp", clients_classpath(), "-d", str(folder), str(SOURCE)]
    subprocess.run(command, check=True, timeout=120)
    return f"{clients_classpath()}:{folder}"


@dataclass(eq=False)
class Member:
    """One process. Its name in the record is that of this life: another life of the same client has another number."""

    name: str
    process: subprocess.Popen[str]
    group: Group
    alive: bool = False

    def join(self) -> Member:
        self.alive = True
        self._say("join")
        return self

    def close(self) -> None:
        """Leaves the group as a consumer that is closed does, and returns when it is gone."""
        self._say("close")
        self.alive = False
        assert self.process.wait(PATIENCE_S) == 0
        self.group.wait(lambda: self.group.saw(self, "closed"), f"{self.name} closes")

    def wait_failed(self, error: str) -> None:
        """Until a fatal error has ended it."""
        self.group.wait(lambda: self.group.saw(self, "failed", error), f"{self.name} fails with {error}")
        self.alive = False
        assert self.process.wait(PATIENCE_S) == 1

    def kill(self) -> None:
        """kill -9."""
        self.alive = False
        self.process.kill()
        self.process.wait()
        self.group.record(Event(time.monotonic_ns(), self.name, "killed"))

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def _say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()


@dataclass(eq=False)
class Group:
    """A group, the topics it reads, and everything that was recorded of it. Close it at the end."""

    bootstrap: str
    group_id: str
    protocol: Protocol
    classpath: str
    logs: Path
    members: list[Member] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    produced: dict[str, int] = field(default_factory=dict)
    """How many records each partition has. What is a key here, the group is to own."""
    config: dict[str, str] = field(default_factory=dict)
    """What its members are configured with beside the protocol's."""
    _owned: dict[str, set[str]] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _readers: list[threading.Thread] = field(default_factory=list)

    # -- members ---------------------------------------------------------------------------------------------------

    def prepare(self, name: str, subscription: str, **config: str) -> Member:
        """A member whose process runs and which has not joined. Underscores in config names stand for dots."""
        options = {**COMMON, **self.protocol.config, "bootstrap.servers": self.bootstrap, "group.id": self.group_id}
        options |= {"client.id": name, **self.config}
        options |= {key.replace("_", "."): value for key, value in config.items()}
        life = f"{name}{sum(m.name.rstrip('0123456789') == name for m in self.members) + 1}"
        arguments = [f"--{subscription}", *(f"{key}={value}" for key, value in options.items())]
        with (self.logs / f"{self.group_id}-{life}.txt").open("w") as log:
            process = start_child(
                ["java", *JVM, "-cp", self.classpath, "GroupMember", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        member = Member(life, process, self)
        self.members.append(member)
        reader = threading.Thread(target=self._read, args=(member,), name=life, daemon=True)
        self._readers.append(reader)
        reader.start()
        return member

    def _read(self, member: Member) -> None:
        assert member.process.stdout is not None
        for line in member.process.stdout:
            if line.startswith("{") and line.endswith("}\n"):  # one that is killed may die within a line
                self.record(_event(member.name, json.loads(line)))

    def record(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            owned = self._owned.setdefault(event.member, set())
            if event.event == "assigned":
                owned |= set(event.partitions)
            elif event.event in ("revoked", "lost"):
                owned -= set(event.partitions)
            elif event.event in ("killed", "failed", "closed"):
                owned.clear()
            self._changed.notify_all()

    def saw(self, member: Member, event: str, error: str = "") -> bool:
        return any(e.member == member.name and e.event == event and e.error == error for e in self.events)

    def close(self) -> None:
        for member in self.members:
            if member.process.poll() is None:
                member.process.kill()
        for member in self.members:
            member.process.wait()
        for reader in self._readers:
            reader.join(PATIENCE_S)
        for member in self.members:
            for pipe in (member.process.stdin, member.process.stdout):
                assert pipe is not None
                pipe.close()

    def set_session_timeout(self, timeout_ms: int) -> None:
        """Of members that are prepared from now on, or of the group where that is the broker's to say (KIP-848)."""
        if self.protocol.is_classic:
            self.config["session.timeout.ms"] = str(timeout_ms)
            return
        name = "consumer.session.timeout.ms"
        resource = ConfigResource(ConfigResource.Type.GROUP, self.group_id)
        resource.add_incremental_config(ConfigEntry(name, str(timeout_ms), incremental_operation=AlterConfigOpType.SET))
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.incremental_alter_configs([resource])[resource].result(30)

    # -- topics ----------------------------------------------------------------------------------------------------

    def create(self, topic: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        self.produced |= {f"{topic}-{p}": 0 for p in range(partitions)}

    def grow(self, topic: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        self.produced |= {f"{topic}-{p}": self.produced.get(f"{topic}-{p}", 0) for p in range(partitions)}

    def produce(self, count: int) -> None:
        """So many records more in each partition."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 5, "topic.metadata.refresh.interval.ms": 500}
        )
        for partition in self.produced:
            topic, number = partition.rsplit("-", 1)
            for _ in range(count):
                producer.produce(topic, b"v", partition=int(number))
        assert producer.flush(PATIENCE_S) == 0
        for partition in self.produced:
            self.produced[partition] += count

    # -- waiting and judging ---------------------------------------------------------------------------------------

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Until the record shows it."""
        with self._changed:
            if not self._changed.wait_for(condition, PATIENCE_S):
                last = "\n".join(str(e) for e in self.events[-30:])
                raise AssertionError(f"{what}: not within {PATIENCE_S} s; {self.owners()}\n{last}")

    def owners(self) -> Owners:
        return {m.name: frozenset(self._owned.get(m.name, ())) for m in self.members if m.alive}

    def wait_settled(self, *, produce: int = 0) -> Owners:
        """Until every partition has one owner, shares are even, and all is read and committed; gives the shares."""
        self.wait(self._is_even, "every partition has one owner, and none has too many")
        if produce:
            self.produce(produce)
        wanted = {partition: count for partition, count in self.produced.items() if count}
        self.wait(lambda: read_up_to(self.events) == wanted, f"everything is read: {wanted}")
        self.wait(lambda: committed(self.events) == wanted, f"everything is committed: {wanted}")
        owners = self.owners()
        assert self._is_even(), f"it went on rebalancing: {owners}"
        return owners

    def _is_even(self) -> bool:
        shares = list(self.owners().values())
        sizes = [len(share) for share in shares]
        owned = sorted(partition for share in shares for partition in share)
        if owned != sorted(self.produced) or max(sizes) - min(sizes) > 1:
            return False
        return not self.protocol.contiguous or all(_is_run(share) for share in shares)

    def assert_sound(self) -> None:
        """What was recorded up to now breaks none of the invariants."""
        with self._changed:
            events = list(self.events)
        problems = find_problems(events)
        if problems:
            raise AssertionError(f"{self.group_id} on {self.protocol.name}:\n" + "\n".join(problems))


def _is_run(share: frozenset[str]) -> bool:
    """Of each topic, one partition after the other."""
    numbers: dict[str, list[int]] = {}
    for partition in share:
        topic, number = partition.rsplit("-", 1)
        numbers.setdefault(topic, []).append(int(number))
    return all(max(run) - min(run) == len(run) - 1 for run in numbers.values())


def _event(member: str, line: dict[str, Any]) -> Event:
    return Event(
        line["at"],
        member,
        line["event"],
        tuple(line.get("partitions", ())),
        tuple((partition, tuple(offsets)) for partition, offsets in line.get("offsets", {}).items()),
        line.get("generation", -1),
        line.get("error", ""),
    )
