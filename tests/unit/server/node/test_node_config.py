"""Configuration, identity files and the quorum-state file."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from barnabas.core.config import ConfigError
from barnabas.server.node.config import build_config, parse_assignments, read_properties_file, unknown_names
from barnabas.server.node.setup.identity import IdentityError, find_identity
from barnabas.server.quorum.quorum_state import (
    QuorumState,
    QuorumStateError,
    parse_quorum_state,
    render_quorum_state,
)
from barnabas.server.storage.fs import OsFileSystem


def test_a_single_broker_can_make_its_internal_topics() -> None:
    config = build_config({}, data_dir="/data")
    assert config["offsets.topic.replication.factor"] == 1
    assert config["transaction.state.log.min.isr"] == 1
    assert config["group.initial.rebalance.delay.ms"] == 3000, "everything else is as in Kafka"
    assert (
        build_config({"offsets.topic.replication.factor": "3"}, data_dir="/d")["offsets.topic.replication.factor"] == 3
    )


def test_listeners_and_what_is_advertised() -> None:
    config = build_config(
        {
            "listeners": "INSIDE://:9092,OUTSIDE://0.0.0.0:9094,CONTROLLER://:9093",
            "advertised.listeners": "OUTSIDE://example.com:19094,INSIDE://broker:9092",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
        },
        data_dir="/data",
    )
    assert [str(e) for e in config.listeners] == ["INSIDE://:9092", "OUTSIDE://0.0.0.0:9094"]
    assert [str(e) for e in config.advertised] == ["INSIDE://broker:9092", "OUTSIDE://example.com:19094"]
    assert [str(e) for e in config.controller_listeners] == ["CONTROLLER://:9093"]
    assert config.inter_broker_listener == "INSIDE"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "--data-dir"),
        ({"log.dirs": "/d", "process.roles": "broker"}, "process.roles"),
        ({"log.dirs": "/d", "process.roles": "manager"}, "must be broker, controller"),
        ({"log.dirs": "/d", "controller.quorum.voters": "1@a:1,2@b:1,3@c:1"}, "Set node.id"),
        ({"log.dirs": "/d", "controller.quorum.voters": "1@a:1,2@b:1", "node.id": "7"}, "contains nodes [1, 2], but"),
        ({"log.dirs": "/d", "controller.quorum.voters": "1@a:1", "node.id": "1", "process.roles": "broker"},
         "contains node 1, but"),
        ({"log.dirs": "/d", "controller.quorum.voters": "1@a:1,2@b:1", "node.id": "1"}, "CONTROLLER://:9093"),
        ({"log.dirs": "/d", "controller.quorum.voters": "1@a:1,1@b:1", "node.id": "1"}, "contains node 1 twice"),
        ({"log.dirs": "/d", "controller.quorum.voters": "a:1"}, "does not have the form id@host:port"),
        ({"log.dirs": "/d", "controller.quorum.bootstrap.servers": "a"}, "does not have the form host:port"),
        ({"log.dirs": "/d", "zookeeper.connect": "z:1", "controller.quorum.bootstrap.servers": "a:1"}, "Remove one"),
        ({"log.dirs": "/d", "node.id": "one"}, "node.id=one"),
        ({"log.dirs": "/d", "inter.broker.listener.name": "INSIDE"}, "inter.broker.listener.name"),
        ({"log.dirs": "/d", "security.inter.broker.protocol": "SSL"}, "no listener for clients has this protocol"),
        ({"log.dirs": "/d", "security.inter.broker.protocol": "SSL", "inter.broker.listener.name": "A"}, "exclude"),
        ({"log.dirs": "/d", "controller.quorum.voters": "1@a:1,2@b:1", "node.id": "1",
          "listeners": "SSL://h:1,CONTROLLER://h:2"}, "listener.security.protocol.map"),
        ({"log.dirs": "/d", "listeners": "nonsense"}, "PLAINTEXT://127.0.0.1:9092"),
        ({"log.dirs": "/d", "advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "0.0.0.0"),
        ({"log.dirs": "/d", "advertised.listeners": "OTHER://h:1", "listener.security.protocol.map": "OTHER:PLAINTEXT"},
         "OTHER"),
        ({"log.dirs": "/d", "num.partitions": "x"}, "num.partitions"),
        ({"log.dirs": "/d", "group.consumer.session.timeout.ms": "1000"},
         "group.consumer.min.session.timeout.ms=45000"),
    ],
)  # fmt: skip
def test_invalid_config_raises_an_error_that_names_the_problem(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        build_config(given)


@pytest.mark.parametrize(
    ("listeners", "is_allowed"),
    [
        ("A://h:1,B://h:2", True),
        ("A://h:0,B://h:0", True),
        ("A://h:1,B://h:1", False),
        ("A://10.0.0.1:1,B://10.0.0.2:1", False),
        ("A://10.0.0.1:1,B://[::1]:1", True),
        ("A://10.0.0.1:1,B://localhost:1", False),
        ("A://10.0.0.1:1,B://[::1]:1,C://[::2]:1", False),
        ("A://:1,B://[::1]:1", False),
    ],
)
def test_listeners_have_ports_of_their_own(listeners: str, is_allowed: bool) -> None:
    names = "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT,CONTROLLER:PLAINTEXT"
    given = {"log.dirs": "/d", "listeners": listeners, "listener.security.protocol.map": names}
    if is_allowed:
        assert len(build_config(given).listeners) == listeners.count("://")
    else:
        with pytest.raises(ConfigError, match="have the same port 1"):
            build_config(given)


def test_listeners_that_start_early_exist() -> None:
    given = {"log.dirs": "/d", "listeners": "PLAINTEXT://h:1"}
    build_config({**given, "early.start.listeners": "plaintext, CONTROLLER"})
    with pytest.raises(ConfigError, match=r"early\.start\.listeners names OTHER"):
        build_config({**given, "early.start.listeners": "OTHER"})


def test_assignments_and_files(tmp_path: Path) -> None:
    assert parse_assignments(["a=b", " c = d=e "]) == {"a": "b", "c": "d=e"}
    with pytest.raises(ConfigError, match="name=value"):
        parse_assignments(["nothing"])
    file = tmp_path / "server.properties"
    file.write_text("# comment\nnum.partitions=3\nlog.dirs = /x\n")
    assert read_properties_file(str(file)) == {"num.partitions": "3", "log.dirs": "/x"}
    with pytest.raises(ConfigError, match="cannot be read"):
        read_properties_file(str(tmp_path / "missing"))
    assert unknown_names({"num.partitions": "1", "num.partition": "1"}) == ["num.partition"]


def test_several_log_dirs() -> None:
    assert build_config({"log.dirs": "/a, /b,/a"}).log_dirs == ("/a", "/b")


def test_identity_comes_from_meta_properties_or_is_generated(tmp_path: Path) -> None:
    fs, rng = OsFileSystem(), random.Random(1)
    one, two = tmp_path / "one", tmp_path / "two"
    for directory in (one, two):
        directory.mkdir()
    fresh = find_identity(fs, build_config({"log.dirs": f"{one},{two}"}), rng)
    assert (fresh.node_id, fresh.is_new, len(fresh.cluster_id)) == (1, True, 22)
    (one / "meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\nnode.id=5\n")
    found = find_identity(fs, build_config({"log.dirs": f"{one},{two}"}), rng)
    assert (found.cluster_id, found.node_id, found.is_new) == ("AAAAAAAAAAAAAAAAAAAAAQ", 5, False)
    with pytest.raises(IdentityError, match="node 5"):
        find_identity(fs, build_config({"log.dirs": str(one), "node.id": "6"}), rng)
    with pytest.raises(IdentityError, match="belongs to cluster"):
        find_identity(fs, build_config({"log.dirs": str(one)}), rng, "another-cluster")
    (two / "meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAg\nnode.id=5\n")
    with pytest.raises(IdentityError, match=r"different values of cluster\.id"):
        find_identity(fs, build_config({"log.dirs": f"{one},{two}"}), rng)


def test_quorum_state_file_has_the_format_of_kafka() -> None:
    written = (
        '{"clusterId":"","leaderId":1,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    state = QuorumState(leader_id=1, leader_epoch=3, voters=(1,))
    assert render_quorum_state(state) == written
    assert parse_quorum_state(written) == state
    newer = '{"leaderId":1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1}'
    assert render_quorum_state(parse_quorum_state(newer)) == newer
    for damaged in ("", "{}", '{"data_version":9,"leaderId":1,"leaderEpoch":1,"votedId":1}'):
        with pytest.raises(QuorumStateError):
            parse_quorum_state(damaged)


QUORUM = {"node.id": "2", "controller.quorum.voters": "1@a:9093,2@b:9093,3@c:9093"}


def test_topology_of_a_node_in_a_cluster_of_three() -> None:
    combined = build_config({**QUORUM, "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}, data_dir="/d")
    assert combined.topology.controllers == (("a", 9093), ("b", 9093), ("c", 9093))
    assert (combined.topology.decides_alone, combined.topology.is_broker) == (False, True)
    assert combined["offsets.topic.replication.factor"] == 3, "three nodes can keep three replicas"
    controller = build_config(
        {**QUORUM, "process.roles": "controller", "listeners": "CONTROLLER://:9093"}, data_dir="/d"
    )
    assert (controller.listeners, controller.inter_broker_listener) == ((), "")
    broker = build_config({**QUORUM, "node.id": "4", "process.roles": "broker"}, data_dir="/d")
    assert broker.controller_listeners == ()
    alone = build_config({}, data_dir="/d").topology
    assert (alone.decides_alone, alone.controllers) == (True, ())


def test_tiered_storage_needs_a_single_log_directory() -> None:
    with pytest.raises(ConfigError, match=r"single directory in log\.dirs"):
        build_config({"remote.log.storage.system.enable": "true"}, data_dir="/one,/two")
    assert build_config({"remote.log.storage.system.enable": "true"}, data_dir="/one").log_dirs == ("/one",)
