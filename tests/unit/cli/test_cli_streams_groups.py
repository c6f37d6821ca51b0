"""kafka-streams-groups: wrong command lines, and what a description on the wire means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas import Admin, Producer
from barnabas.cli.kafka.groups.streams_groups import _assignments, _members, build_parser, check, main
from barnabas.client.admin.offset_resets import ResetTarget
from barnabas.client.admin.streams_groups import StreamsGroupDescription, StreamsTasks, _description
from barnabas.client.values import GroupState, NewTopic
from barnabas.protocol.wire.messages import streams_group_describe as wire
from barnabas.testing import EmbeddedBroker

RESET = ("--reset-offsets", "--group", "g")


def parse(*arguments: str) -> ResetTarget | None:
    parser = build_parser()
    return check(parser.parse_args(["--bootstrap-server", "localhost:9092", *arguments]), parser)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--describe",), "--group or --all-groups is required"),
        (("--delete-offsets", "--group", "g"), "needs --input-topic or --all-input-topics"),
        (("--delete-offsets", "--group", "g", "--group", "h", "--all-input-topics"), "exactly one --group"),
        ((*RESET, "--all-input-topics", "--to-latest"), "one of --dry-run and --execute"),
        ((*RESET, "--to-latest", "--dry-run"), "--reset-offsets needs --input-topic, --all-input-topics or"),
        ((*RESET, "--all-input-topics", "--dry-run"), "--reset-offsets needs one of --to-earliest"),
        (
            (*RESET, "--all-input-topics", "--to-latest", "--dry-run", "--delete-all-internal-topics"),
            "internal topics are deleted with --execute only",
        ),
        (("--delete", "--group", "g", "--delete-internal-topic", "t"), "--delete-internal-topic is for"),
        (("--describe", "--group", "g", "--delete-all-internal-topics"), "--delete-all-internal-topics is for"),
    ],
)
def test_a_wrong_command_line_is_refused(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        parse(*arguments)
    assert left.value.code == 1
    assert message in capsys.readouterr().err


def test_a_reset_names_its_target() -> None:
    assert parse(*RESET, "--all-input-topics", "--to-offset", "7", "--dry-run") == ResetTarget("offset", 7)
    assert parse(*RESET, "--input-topic", "t:0", "--export", "--dry-run") == ResetTarget("current")
    assert parse("--list") is None


def group() -> wire.DescribedGroup:
    changelog = wire.TopicInfo(name="g-store-changelog", partitions=0, replication_factor=1, topic_configs=[])
    repartition = wire.TopicInfo(name="g-by-key-repartition", partitions=2, replication_factor=1, topic_configs=[])
    first = wire.Subtopology(
        subtopology_id="0",
        source_topics=["in"],
        repartition_sink_topics=[repartition.name],
        state_changelog_topics=[],
        repartition_source_topics=[],
    )
    second = wire.Subtopology(
        subtopology_id="1",
        source_topics=[],
        repartition_sink_topics=[],
        state_changelog_topics=[changelog],
        repartition_source_topics=[repartition],
    )
    member = wire.Member(
        member_id="m",
        member_epoch=3,
        client_id="c",
        client_host="/127.0.0.1",
        topology_epoch=0,
        process_id="p",
        client_tags=[],
        task_offsets=[],
        task_end_offsets=[],
        assignment=wire.Assignment(
            active_tasks=[
                wire.TaskIds(subtopology_id="0", partitions=[1, 0]),
                wire.TaskIds(subtopology_id="1", partitions=[0]),
            ],
            standby_tasks=[wire.TaskIds(subtopology_id="1", partitions=[1])],
            warmup_tasks=[],
        ),
        target_assignment=wire.Assignment(active_tasks=[], standby_tasks=[], warmup_tasks=[]),
        is_classic=False,
    )
    return wire.DescribedGroup(
        error_code=0,
        group_id="g",
        group_state="Stable",
        group_epoch=3,
        assignment_epoch=2,
        topology=wire.Topology(epoch=0, subtopologies=[first, second]),
        members=[member],
    )


def test_topics_that_the_application_created_are_internal() -> None:
    described = _description(group())
    assert described.source_topics == {"in"}
    assert described.internal_topics == {"g-store-changelog", "g-by-key-repartition"}
    assert described.read_topics == {"in", "g-by-key-repartition"}


def test_members_are_shown_with_their_tasks() -> None:
    described = _description(group())
    tasks = "ACTIVE: 0:[0,1]; 1:[0]; STANDBY: 1:[1];"
    assert _members(described, verbose=False)[1:] == [["g", "m", "p", "c", tasks]]
    assert _members(described, verbose=True)[1:] == [["g", "2", "0", "m", "streams", "3", "p", "c", tasks]]
    assert _assignments(StreamsTasks(warmup=(("0", (1,)),)), "TARGET-") == "TARGET-WARMUP: 0:[1];"


@pytest.mark.timeout(120)
def test_offsets_are_shown_reset_and_deleted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything but the description of the group, which a broker of Barnabas cannot give, is asked of a broker."""
    described = replace(_description(group()), members=(), state=GroupState.EMPTY)

    async def describe(_cluster: object, names: list[str], **_: object) -> dict[str, StreamsGroupDescription]:
        return dict.fromkeys(names, described)

    monkeypatch.setattr("barnabas.client.admin.streams_groups.describe_streams_groups", describe)

    def run(bootstrap: str, *arguments: str, fails: bool = False) -> list[list[str]]:
        command = ["kafka-streams-groups", "--bootstrap-server", bootstrap, "--group", "g", *arguments]
        monkeypatch.setattr("sys.argv", command)
        if fails:
            with pytest.raises(SystemExit):
                main()
        else:
            main()
        return [line.split() for line in capsys.readouterr().out.splitlines() if line]

    with EmbeddedBroker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        names = ("in", "g-by-key-repartition", "g-store-changelog")
        admin.create_topics([NewTopic(name, 1, 1) for name in names])
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for _ in range(3):
                producer.send("in", b"x").result()
        servers, reset = broker.bootstrap_servers, ("--reset-offsets", "--all-input-topics", "--execute")
        assert run(servers, "--describe", "--verbose")[1:] == [
            ["g", "g-by-key-repartition", "0", "-", "-", "0", "0"],
            ["g", "in", "0", "-", "-", "3", "3"],
        ]
        assert run(servers, *reset, "--to-offset", "2")[-1] == ["g", "in", "0", "2"]
        assert run(servers, "--describe")[-1] == ["g", "in", "0", "1"]
        assert run(servers, *reset, "--to-latest", "--delete-internal-topic", "in", fails=True) == []
        run(servers, *reset, "--to-latest", "--delete-internal-topic", "g-store-changelog")
        assert run(servers, "--describe")[-1] == ["g", "in", "0", "0"]
        assert sorted(topic.name for topic in admin.list_topics()) == ["g-by-key-repartition", "in"]
        assert run(servers, "--delete-offsets", "--all-input-topics")[-1] == ["in", "0", "Successful"]
        run(servers, *reset, "--to-earliest")
        deleted = run(servers, "--delete", "--delete-all-internal-topics")
        assert " ".join(deleted[0]) == "Deletion of requested streams groups ('g') was successful."
        assert [topic.name for topic in admin.list_topics()] == ["in"]
