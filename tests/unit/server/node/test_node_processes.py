"""The configurations of several brokers of one host."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from barnabas.core.config import ConfigError
from barnabas.server.node.config import NodeConfig, build_config
from barnabas.server.node.setup.processes import split_config

ONE_HOST = {"log.dirs": "/data", "listeners": "PLAINTEXT://h:9092"}


def configs(given: Mapping[str, str], processes: int = 3) -> list[NodeConfig]:
    parts = split_config(given, processes, hostname="host-a", free_port=lambda: 40_000)
    return [build_config({**given, **part.texts}) for part in parts]


def ports(config: NodeConfig) -> list[tuple[str, int]]:
    return [(endpoint.name, endpoint.port) for endpoint in (*config.listeners, *config.controller_listeners)]


def test_processes_of_one_host_form_a_cluster_with_one_controller() -> None:
    found = configs(ONE_HOST)
    assert [config.node_id for config in found] == [1, 2, 3]
    assert [config.log_dirs for config in found] == [("/data/node-1",), ("/data/node-2",), ("/data/node-3",)]
    assert [ports(config) for config in found] == [
        [("PLAINTEXT", 9092), ("CONTROLLER", 19092)],
        [("PLAINTEXT", 9093)],
        [("PLAINTEXT", 9094)],
    ]
    assert [config.topology.is_controller for config in found] == [True, False, False]
    assert {config.topology.bootstrap for config in found} == {(("127.0.0.1", 19092),)}
    assert {config["broker.rack"] for config in found} == {"host-a"}


def test_every_process_has_the_same_replication_factors() -> None:
    found = configs(ONE_HOST)
    assert {config["offsets.topic.replication.factor"] for config in found} == {1}
    assert {config["transaction.state.log.min.isr"] for config in found} == {1}
    found = configs({**ONE_HOST, "offsets.topic.replication.factor": "2"})
    assert {config["offsets.topic.replication.factor"] for config in found} == {2}


def test_configured_ids_rack_roles_and_directories_are_kept() -> None:
    found = configs(
        {
            "node.id": "20",
            "broker.rack": "east",
            "process.roles": "broker",
            "controller.quorum.voters": "1@c1:9093,2@c2:9093,3@c3:9093",
            "log.dirs": "/a, /b/",
            "listeners": "PLAINTEXT://h:9092",
        },
        2,
    )
    assert [config.node_id for config in found] == [20, 21]
    assert [config.log_dirs for config in found] == [("/a/node-20", "/b/node-20"), ("/a/node-21", "/b/node-21")]
    assert {config["broker.rack"] for config in found} == {"east"}
    assert not any(config.topology.is_controller for config in found)
    assert {config["offsets.topic.replication.factor"] for config in found} == {3}


def test_ports_of_other_listeners_are_left_out_and_stay_when_processes_are_added() -> None:
    given = {
        "log.dirs": "/data",
        "listeners": "IN://:9092,CONTROLLER://:9093,OUT://:9095",
        "advertised.listeners": "IN://h:9092,OUT://public:29095",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    three, four = configs(given, 3), configs(given, 4)
    assert [ports(config) for config in three] == [
        [("IN", 9092), ("OUT", 9095), ("CONTROLLER", 9093)],
        [("IN", 9094), ("OUT", 9096)],
        [("IN", 9097), ("OUT", 9098)],
    ]
    assert [ports(config) for config in four[:3]] == [ports(config) for config in three]
    advertised = [(endpoint.host, endpoint.port) for endpoint in three[2].advertised]
    assert advertised == [("h", 9097), ("public", 29098)]
    assert three[1].topology.bootstrap == (("127.0.0.1", 9093),)


def test_port_zero_takes_any_free_port_for_each_process() -> None:
    found = configs({**ONE_HOST, "listeners": "PLAINTEXT://127.0.0.1:0"}, 2)
    assert [ports(config) for config in found] == [[("PLAINTEXT", 0), ("CONTROLLER", 40_000)], [("PLAINTEXT", 0)]]


def test_one_process_is_a_cluster_too() -> None:
    (found,) = configs(ONE_HOST, 1)
    assert (found.node_id, found.topology.decides_alone) == (1, True)


@pytest.mark.parametrize(
    ("given", "processes", "message"),
    [
        (ONE_HOST, 0, "--processes 0"),
        ({**ONE_HOST, "node.id": "x"}, 2, "node.id=x"),
        ({**ONE_HOST, "listeners": "PLAINTEXT://h:60000"}, 2, "Port 70000"),
        ({**ONE_HOST, "listeners": "PLAINTEXT://h:65534,CONTROLLER://h:9093"}, 3, "exceed 65535"),
        ({**ONE_HOST, "listeners": "nonsense"}, 2, "not a listener"),
        ({**ONE_HOST, "process.roles": "controller", "controller.quorum.voters": "1@h:9093"}, 2, "does not contain"),
        ({**ONE_HOST, "process.roles": "broker"}, 2, "no controller is configured"),
    ],
)
def test_configuration_that_does_not_fit_several_processes_is_rejected(
    given: dict[str, str], processes: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        configs(given, processes)
