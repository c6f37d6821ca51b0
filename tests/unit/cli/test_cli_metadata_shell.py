"""`kafka-metadata-shell` on a metadata log that Apache Kafka 4.3.1 wrote, and on snapshots of our own."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from barnabas.cli.kafka.cluster.metadata_commands import MetadataShell, columns
from barnabas.cli.kafka.cluster.metadata_shell import main, read_image
from barnabas.cli.kafka.cluster.metadata_tree import Directory, metadata_tree
from barnabas.core.ids import NO_TOPIC_ID
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.security.credentials import ScramCredential
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.records.codec import encode_record
from barnabas.server.metadata.records.other import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    UserScramCredentialRecord,
)
from barnabas.server.metadata.snapshot import image_records

LOG = Path(__file__).parents[2] / "golden" / "metadata" / "kafka_4_3_1_cluster_metadata.log"


@pytest.fixture(scope="module")
def root() -> Directory:
    return metadata_tree(read_image(LOG))


def lines(root: Directory, *words: str) -> list[str]:
    return list(MetadataShell(root).run(words))


def test_files_have_the_texts_of_kafka(root: Directory) -> None:
    """`tests/interop/test_interop_metadata_shell.py` compares all of them with Kafka's own shell."""
    assert lines(root, "cat", "/image/provenance") == ["offset 37, epoch 1, time 2026-11-20T18:30:08.681Z[UTC]"]
    assert lines(root, "cat", "/image/features/metadataVersion") == ["Optional[4.3-IV0]"]
    assert lines(root, "cat", "/image/topics/byName/flights/2") == [
        "PartitionRegistration(replicas=[1], directories=[02eTUtpoSBS4fmJBiJc5cw], isr=[], removingReplicas=[], "
        "addingReplicas=[], elr=[1], lastKnownElr=[1], leader=-1, leaderRecoveryState=RECOVERED, leaderEpoch=1, "
        "partitionEpoch=1)"
    ]


def test_paths_have_wildcards_and_dots(root: Directory) -> None:
    assert lines(root, "find", "/image/configs/TOPIC:*") == [
        "/image/configs/TOPIC:*", "/image/configs/TOPIC:*/retention.ms",
    ]  # fmt: skip
    assert lines(root, "cat", "/image/./configs/../configs/{BROKER,TOPIC}:{1,fl?ghts}/*") == ["2", "1000"]
    assert lines(root, "cat", r"/image/configs/TOPIC\:flights/retention.ms") == ["1000"]


def test_ls_lists_files_first_and_titles_directories(root: Directory) -> None:
    assert lines(root, "ls", "/image/topics", "/image/provenance", "/image/cluster") == [
        "provenance", "", "topics:", "byId", "byName", "", "cluster:", "brokers", "controllers",
    ]  # fmt: skip


def test_tree_indents_what_is_inside(root: Directory) -> None:
    assert lines(root, "tree", "/image/configs") == [
        "BROKER:", "  min.insync.replicas:", "    1", "BROKER:1:", "  log.cleaner.threads:", "    2",
        "TOPIC:flights:", "  retention.ms:", "    1000",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("cat", "/image"), "cat: /image: Is a directory"),
        (("cat", "/x"), "cat: /x: No such file or directory."),
        (("ls", "/x"), "ls: /x: no such file or directory."),
        (("find", "/x/*"), "find: /x/*: no such file or directory."),
        (("tree", "/local/version/x"), "tree: /local/version/x: No such file or directory."),
        (("cd", "/local/version"), "cd: /local/version: not a directory."),
        (("cat",), "usage: cat targets [targets ...]"),
        (("man", "rm"), "man: unknown command rm. Type help to get a list of commands."),
        (("rm", "/image"), "Unknown command specified: rm. Type help to get a list of commands."),
    ],
)
def test_wrong_commands_and_paths_say_so(root: Directory, words: tuple[str, ...], printed: str) -> None:
    shell = MetadataShell(root)
    assert list(shell.run(words)) == [printed]
    assert shell.failed


def test_working_directory_is_where_relative_paths_begin(root: Directory) -> None:
    shell = MetadataShell(root)
    assert [*shell.run(["cd", "image/t*"]), *shell.run(["pwd"])] == ["/image/topics"]
    assert [*shell.run(["cat", "byName/flights/name"]), *shell.run(["ls", ".."])][:2] == ["flights", "acls"]
    assert shell.complete("byName/fl") == ["byName/flights/"]
    assert shell.complete("../cluster/b") == ["../cluster/brokers/"]
    assert [*shell.run(["cd"]), *shell.run(["pwd"])] == ["/"]


def test_names_stand_in_columns_on_a_screen() -> None:
    assert list(columns(["a", "bb", "ccc", "d", "e"], 14)) == ["a   ccc  e", "bb  d"]
    assert list(columns(["a", "bb"], None)) == ["a", "bb"]


def snapshot(folder: Path, image: ClusterImage) -> Path:
    records = [SimpleRecord(None, encode_record(record), 1_700_000_000_000) for record in image_records(image)]
    path = folder / "00000000000000000009-0000000002.checkpoint"
    path.write_bytes(build_batch(records, leader_epoch=2))
    return path


@pytest.fixture
def small() -> ClusterImage:
    """An image with what the cluster of Apache Kafka does not have."""
    delta = ClusterDelta(ClusterImage())
    delta.apply(
        AccessControlEntryRecord(
            id=NO_TOPIC_ID, resource_type=2, resource_name="orders", pattern_type=3, principal="User:a", host="*",
            operation=3, permission_type=3,
        )
    )  # fmt: skip
    entity = [EntityData(entity_type="user", entity_name="a(b)"), EntityData(entity_type="client-id", entity_name=None)]
    delta.apply(ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=1e7))
    delta.apply(
        UserScramCredentialRecord(
            name="a", mechanism=2, salt=b"\1", stored_key=b"\2", server_key=b"\3", iterations=4096
        )
    )
    delta.apply(ConfigRecord(resource_type=16, resource_name="all", name="interval.ms", value="5000"))
    return delta.finish(ClusterImage().provenance)


def test_a_checkpoint_shows_acls_quotas_and_users(tmp_path: Path, small: ClusterImage) -> None:
    assert ScramCredential(b"\1", b"\2", b"\3", 4096) == small.scram.get(2, "a")
    root = metadata_tree(read_image(snapshot(tmp_path, small)))
    assert lines(root, "cat", "/image/acls/byId/*") == [
        "StandardAcl(resourceType=TOPIC, resourceName=orders, patternType=LITERAL, principal=User:a, host=*, "
        "operation=READ, permissionType=ALLOW)"
    ]
    assert lines(root, "tree", "/image/clientQuotas") == [
        r"clientId(<default>)_user(a\(b\)):", "  producer_byte_rate:", "    1.0E7",
    ]  # fmt: skip
    assert lines(root, "tree", "/image/scram") == [
        "SCRAM-SHA-256:", "SCRAM-SHA-512:", "  a:",
        "    ScramCredentialData(salt=01, storedKey=02, serverKey=03, iterations=4096)",
    ]  # fmt: skip
    assert lines(root, "ls", "/image/configs") == ["CLIENT_METRICS:all"]
    assert lines(root, "cat", "/image/provenance")[0].startswith("offset 8, epoch 2, ")


def test_a_directory_is_its_newest_checkpoint_and_the_log_after_it(tmp_path: Path, small: ClusterImage) -> None:
    snapshot(tmp_path, small)
    (tmp_path / "00000000000000000000.log").write_bytes(LOG.read_bytes())
    image = read_image(tmp_path)
    assert image.offset == 37
    assert dict(image.configs.topic("flights")) == {"retention.ms": "1000"}
    assert image.scram.get(2, "a") is not None


def test_prompt_reads_commands_until_exit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["kafka-metadata-shell", "--snapshot", str(LOG)])
    monkeypatch.setattr(sys, "stdin", io.StringIO("cd image\npwd\n\ncat 'x\nhistory 2\nexit\nls\n"))
    main()
    printed = capsys.readouterr().out.replace(">> ", "").splitlines()
    assert printed == [
        "[ Kafka Metadata Shell ]",
        "/image",
        "No closing quotation.",
        "    2  cat 'x",
        "    3  history 2",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--snapshot", "nowhere", "ls"], "No such file"),
        (["--snapshot", str(Path(__file__)), "ls"], "magic"),
        (["--snapshot", str(Path(__file__).parent), "ls"], "has no .checkpoint and no .log file"),
        (["--snapshot", str(LOG), "cd", "/"], "works at the prompt only"),
    ],
)
def test_wrong_files_and_commands_end_with_an_error(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kafka-metadata-shell", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 1
    assert said in capsys.readouterr().err
