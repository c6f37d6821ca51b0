"""Kafka Streams, exactly once, by its own system test: instances and the broker are killed; the verifier must agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing.process import BrokerProcess
from tests.interop.streams.eos import PROCESSED, STARTUP_S, StreamsEos, wait_working
from tests.interop.streams.process import TalkingProcess

SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.num.partitions=4",
    "transaction.state.log.num.partitions=4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
)
VERIFY_S = 330.0


@pytest.fixture
def eos(tmp_path: Path) -> Iterator[StreamsEos]:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        program = StreamsEos(broker, tmp_path)
        program.create_topics()
        try:
            yield program
        finally:
            program.close()


def test_an_instance_and_the_broker_are_killed(eos: StreamsEos) -> None:
    """Kafka's recipe with two instances instead of three, and a broker that dies between."""
    generator = eos.run("run", "generator")
    one = eos.run("process-complex", "one")
    wait_working(one)
    two = add(eos, "two", one)
    kill_instance(two, one)
    two = add(eos, "two", one)
    kill_broker(eos, one, two)
    finish(eos, generator, one, two)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_instance_is_killed_and_the_broker_between(eos: StreamsEos) -> None:
    """`run_failure_and_recovery` with three instances, each killed in turn, and the broker after each."""
    generator = eos.run("run", "generator")
    instances = {"one": eos.run("process-complex", "one")}
    wait_working(instances["one"])
    for name in ("two", "three"):
        instances[name] = add(eos, name, *instances.values())
    for name in ("one", "two", "three"):
        victim = instances.pop(name)
        kill_instance(victim, *instances.values())
        kill_broker(eos, *instances.values())
        instances[name] = add(eos, name, *instances.values())
    finish(eos, generator, *instances.values())


def add(eos: StreamsEos, name: str, *others: TalkingProcess) -> TalkingProcess:
    """One more instance; all get their share and work on it."""
    marks = [other.mark() for other in others]
    added = eos.run("process-complex", name)
    wait_working(added)
    for other, mark in zip(others, marks, strict=True):
        wait_working(other, mark)
    return added


def kill_instance(victim: TalkingProcess, *others: TalkingProcess) -> None:
    """kill -9: its session must time out, its transaction be aborted, and the others take over."""
    marks = [other.mark() for other in others]
    victim.kill()
    for other, mark in zip(others, marks, strict=True):
        wait_working(other, mark)


def kill_broker(eos: StreamsEos, *instances: TalkingProcess) -> None:
    marks = [instance.mark() for instance in instances]
    eos.broker.kill()
    eos.broker.start()
    for instance, mark in zip(instances, marks, strict=True):
        instance.wait_for(PROCESSED, STARTUP_S, mark)


def finish(eos: StreamsEos, generator: TalkingProcess, *instances: TalkingProcess) -> None:
    """All are stopped, one by one; then the verifier computes everything anew."""
    for number, instance in enumerate(instances):
        rest = instances[number + 1 :]
        marks = [other.mark() for other in rest]
        instance.stop(STARTUP_S)
        assert "EOS-TEST-CLIENT-CLOSED" in instance.lines
        for other, mark in zip(rest, marks, strict=True):
            wait_working(other, mark)
    generator.stop(STARTUP_S)
    assert any(line.startswith("End-offset for data-0") for line in generator.lines)
    verifier = eos.run("verify-complex", "verifier")
    verifier.wait_for("^ALL-RECORDS-DELIVERED$", VERIFY_S)
