"""`barnabas mirror` and `connect-mirror-maker`, without clusters."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.kafka.connect import mirror_maker
from barnabas.cli.spark.mirror_run import lag_cells, lag_json, read_mirror_config
from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.deciding.lag import MirrorLag

_FILE = """clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
"""


def _file(tmp_path: Path, more: str = "") -> str:
    path = tmp_path / "mm2.properties"
    path.write_text(_FILE + more)
    return str(path)


def test_secrets_may_lie_in_other_files(tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("password=p4\n")
    file = _file(
        tmp_path,
        "config.providers=file\n"
        "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n"
        f"A.sasl.password=${{file:{tmp_path}/secrets:password}}\n",
    )
    pair = read_mirror_config(file).pair("A", "B")
    assert pair is not None
    assert pair.source_clients.consumer["sasl.password"] == "p4"


@pytest.mark.parametrize(
    ("more", "arguments", "message"),
    [
        ("", ["--clusters", "C"], "there is no cluster C"),
        ("topicz=x\n", [], "did you mean topics?"),
        ("A->B.enabled=false\nemit.heartbeats.enabled=false\n", [], "no pair does anything"),
    ],
)
def test_a_wrong_file_or_cluster_ends_the_tool_with_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: str,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.setattr("sys.argv", ["connect-mirror-maker", _file(tmp_path, more), *arguments])
    with pytest.raises(SystemExit) as ended:
        mirror_maker.main()
    assert ended.value.code in (1, 2)
    assert message in capsys.readouterr().err


def test_an_unknown_lag_is_shown_as_unknown() -> None:
    lag = MirrorLag(TopicPartition("t", 1), 5, None, None, None, None)
    assert lag_cells("A->B", lag) == ("A->B", "t", 1, 5, None, "unknown", None, None, 0)
    shown = lag_json(lag)
    assert [shown[name] for name in ("sourceEnd", "lag", "lagBytes", "lagSeconds")] == [None] * 4


def test_a_lag_is_shown_as_cells_and_as_json() -> None:
    lag = MirrorLag(TopicPartition("t", 1), 5, 25, 20, 2_048, 3.4, copied=5, lost=1)
    assert lag_cells("A->B", lag) == ("A->B", "t", 1, 5, 25, 20, "2.0 KiB", 3, 1)
    assert lag_json(lag) == {
        "topic": "t",
        "partition": 1,
        "position": 5,
        "sourceEnd": 25,
        "lag": 20,
        "lagBytes": 2_048,
        "lagSeconds": 3.4,
        "copied": 5,
        "lost": 1,
    }
