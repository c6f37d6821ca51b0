"""The problems that the overview names, worst first."""

from __future__ import annotations

from barnabas.client.cluster.metadata import TopicDescription, TopicPartitionInfo
from barnabas.client.values import ClusterDescription, LogDirDescription
from barnabas.console.documents.problems import problems
from barnabas.console.sampling.sampler import ClusterSample
from barnabas.core.ids import TopicPartition

MIB = 1024 * 1024


def topic(name: str, *isrs: tuple[int, ...]) -> TopicDescription:
    partitions = [TopicPartitionInfo(name, i, isr[0], 0, (1, 2, 3), isr) for i, isr in enumerate(isrs)]
    return TopicDescription(name, partitions=tuple(partitions))


def texts(sample: ClusterSample, *, controller_answers: bool = True) -> list[tuple[str, str, str]]:
    found = problems(sample, controller_answers=controller_answers)
    return [(p["level"], p["text"], p["link"]) for p in found]


def test_a_dead_broker_is_one_problem_and_one_line_for_all_its_partitions() -> None:
    cluster = ClusterDescription("id", 1, (), frozenset({3}))
    topics = {"orders": topic("orders", (1, 2), (2, 1), (1, 2), (2, 1)), "paid": topic("paid", (1, 3))}
    assert texts(ClusterSample(1, cluster, topics)) == [
        (
            "bad",
            "Broker 3 has no session with the controller (fenced): it is down, starting, or cut off.",
            "/brokers",
        ),
        (
            "warn",
            "4 partitions (orders-0, orders-1, orders-2 and 1 more) are under-replicated: broker 3 is not in sync.",
            "/topics",
        ),
        ("warn", "paid-0 is under-replicated: broker 2 is not in sync.", "/topics/paid"),
    ]


def test_a_full_disk_is_worse_than_one_that_fills_up() -> None:
    directories = {
        1: {"/a": LogDirDescription("/a", {}, 100 * MIB, 5 * MIB)},
        2: {"/b": LogDirDescription("/b", {}, 100 * MIB, 0)},
        3: {"/c": LogDirDescription("/c", {}, 100 * MIB, 50 * MIB), "/d": LogDirDescription("/d", {})},
    }
    assert texts(ClusterSample(1, log_dirs=directories)) == [
        ("bad", "Broker 2: the disk of /b is full. Partitions that the broker leads are not written.", "/brokers"),
        ("warn", "Broker 1: /a has 5.0 MiB left.", "/brokers"),
    ]


def test_one_stuck_member_of_a_group_that_goes_on_is_named_by_its_partitions() -> None:
    stalled = {("billing", TopicPartition("orders", i)): (637, 1_000) for i in (3, 4)}
    sample = ClusterSample(91_000, stalled_partitions=stalled)
    assert texts(sample) == [
        (
            "warn",
            "The group billing reads on, but commits nothing for orders-3, orders-4, for 1 min 30 s or longer.",
            "/groups/billing",
        )
    ]
    whole = ClusterSample(
        91_000, lags={"billing": 7}, stalled_groups={"billing": (9, 1_000)}, stalled_partitions=stalled
    )
    assert [link for _, _, link in texts(whole)] == ["/groups/billing/why"]


def test_a_cluster_that_does_not_answer_has_the_reason_and_the_lost_controller() -> None:
    sample = ClusterSample(1, ClusterDescription("id", 1, ()), problem="broker 2: Connection refused.")
    assert texts(sample, controller_answers=False) == [
        (
            "bad",
            "There is no active controller, or it does not answer: start controllers until a majority of them runs. The"
            " page /readyz of a node says what each controller answered.",
            "/quorum",
        ),
        ("bad", "The cluster could not be measured: broker 2: Connection refused.", "/brokers"),
    ]
