"""`barnabas cluster init` and `barnabas cluster certificates`: the files, their modes, and what nodes make of them."""

from __future__ import annotations

import stat
from ipaddress import ip_address
from pathlib import Path
from random import Random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from typer.testing import CliRunner, Result

from barnabas.cli.app import build_app
from barnabas.client.config import ADMIN_CONFIGS, resolve_config
from barnabas.client.options import security_config
from barnabas.core.clock import SystemClock
from barnabas.core.properties import parse_properties
from barnabas.protocol.transport.tls import build_tls_context
from barnabas.server.node.config import NodeConfig, build_config, unknown_names
from barnabas.server.node.setup.first_users import first_user_records
from barnabas.server.node.setup.listeners import open_listeners
from barnabas.server.node.setup.security_configs import SecuritySources, build_node_security


def call(*words: str) -> Result:
    return CliRunner().invoke(build_app(("cluster",)), ["cluster", *words])


def make(folder: Path, *words: str) -> Path:
    done = call("init", "--secure", str(folder), *words)
    assert done.exit_code == 0, done.output
    return folder


def node_config(folder: Path, node_id: int) -> NodeConfig:
    given = parse_properties((folder / f"nodes/node-{node_id}.properties").read_text())
    assert unknown_names(given) == []
    return build_config(given)


def names_of(store: Path) -> set[str]:
    certificate = x509.load_pem_x509_certificates(store.read_bytes())[0]
    return {str(n.value) for n in certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value}


def test_all_files_belong_to_their_owner_and_are_never_overwritten(tmp_path: Path) -> None:
    folder = make(tmp_path / "c")
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    nodes = [f"nodes/node-{node}.{kind}" for node in (1, 2, 3) for kind in ("pem", "properties")]
    assert [str(path.relative_to(folder)) for path in files] == [
        "authority/ca-1.key", "authority/ca-1.pem", "ca.pem", "client.properties", "first-users",
        "librdkafka.properties", *nodes,
    ]  # fmt: skip
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    folders = (folder, folder / "nodes", folder / "authority")
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
    content = [path.read_bytes() for path in files]
    (folder / "client.properties").unlink()
    again = call("init", "--secure", str(folder))
    assert (again.exit_code, "never overwritten" in again.output) == (2, True)
    assert not (folder / "client.properties").exists(), "nothing is written if one file exists"
    assert [path.read_bytes() for path in files if path.exists()] == [content[i] for i in range(len(files)) if i != 3]


def test_nodes_and_clients_accept_the_settings(tmp_path: Path) -> None:
    folder = make(tmp_path / "c", "--controllers", "1", "-c", "num.partitions=7")
    sources = SecuritySources(SystemClock(), lambda: 0.0, Random(1), lambda _m, _u: None, lambda _t: None)
    protocols = {1: {"CLIENTS": "SASL_SSL", "NODES": "SSL"}, 101: {"CONTROLLER": "SSL"}}
    for node_id, expected in protocols.items():
        config = node_config(folder, node_id)
        endpoints = (*config.listeners, *config.controller_listeners)
        assert {endpoint.name: endpoint.security_protocol for endpoint in endpoints} == expected
        assert open_listeners(config) == []
        assert config["num.partitions"] == 7
        assert config.given["allow.everyone.if.no.acl.found"] == "false"
        security = build_node_security(config, sources)
        assert security.to_controllers.tls is not None
        for name in expected.keys() & {"NODES", "CONTROLLER"}:
            tls = security.listeners[name].tls
            assert tls is not None
            assert tls.context.verify_mode.name == "CERT_REQUIRED"
            der = x509.load_pem_x509_certificates((folder / f"nodes/node-{node_id}.pem").read_bytes())[0]
            principal = tls.principal(der.public_bytes(Encoding.DER))
            assert str(principal) in config.given["super.users"].split(";")
    users = first_user_records((folder / "first-users").read_text().splitlines(), Random(1))
    assert [user.name for user in users] == ["admin"]
    settings = resolve_config(ADMIN_CONFIGS, parse_properties((folder / "client.properties").read_text()), {})
    client = security_config(settings)
    assert client.sasl is not None
    assert client.tls is not None
    assert (client.sasl.username, client.sasl.sasl_mechanism) == ("admin", "SCRAM-SHA-512")
    build_tls_context(client.tls)
    theirs = parse_properties((folder / "librdkafka.properties").read_text())
    assert theirs["sasl.password"] == client.sasl.password
    assert len(theirs["sasl.password"]) >= 32


def test_certificates_are_for_the_hosts_of_the_nodes(tmp_path: Path) -> None:
    hosts = ("--host", "host1", "--host", "10.1.2.3", "--host", "fd00::3")
    folder = make(tmp_path / "c", *hosts)
    stores = [folder / f"nodes/node-{node}.pem" for node in (1, 2, 3)]
    assert [names_of(store) for store in stores] == [{"host1"}, {"10.1.2.3"}, {str(ip_address("fd00::3"))}]
    config = node_config(folder, 2)
    assert [str(endpoint) for endpoint in config.listeners] == ["CLIENTS://:9092", "NODES://:14092"]
    assert [str(endpoint) for endpoint in config.advertised] == ["CLIENTS://10.1.2.3:9092", "NODES://10.1.2.3:14092"]
    servers = parse_properties((folder / "client.properties").read_text())["bootstrap.servers"]
    assert servers == "host1:9092,10.1.2.3:9092,[fd00::3]:9092"
    assert names_of(make(tmp_path / "d") / "nodes/node-1.pem") == {"localhost", "127.0.0.1", "::1"}
    few = call("init", "--secure", str(tmp_path / "e"), "--host", "host1", "--brokers", "3")
    assert (few.exit_code, "3 nodes" in few.output) == (2, True)
    assert not (tmp_path / "e").exists()


def test_a_cluster_without_secure_has_no_secrets(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    assert call("init", str(folder), "--brokers", "1").exit_code == 0
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert found == ["client.properties", "librdkafka.properties", "nodes/node-1.properties"]
    assert [str(endpoint) for endpoint in node_config(folder, 1).listeners] == ["PLAINTEXT://127.0.0.1:9092"]


def test_the_authority_is_replaced_in_three_steps(tmp_path: Path) -> None:
    folder = make(tmp_path / "c", "--brokers", "1")
    trust, store = folder / "ca.pem", folder / "nodes/node-1.pem"
    first, names = trust.read_text(), names_of(store)
    early = call("certificates", str(folder), "--add-authority")
    assert (early.exit_code, trust.read_text().count("BEGIN"), first in trust.read_text()) == (0, 2, True)
    refused = call("certificates", str(folder), "--drop-authorities")
    assert (refused.exit_code, "first give --renew" in refused.output) == (1, True)
    old = store.read_text()
    assert call("certificates", str(folder), "--renew", "--days", "30").exit_code == 0
    assert store.read_text() != old
    assert names_of(store) == names
    assert call("certificates", str(folder), "--drop-authorities").exit_code == 0
    assert (trust.read_text().count("BEGIN"), first == trust.read_text()) == (1, False)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (trust, store)} == {0o600}
    assert not list(folder.rglob(".*"))
    shown = call("certificates", str(folder), "--json").output
    assert '"subject": "CN=node-1"' in shown
    assert '"issuer": "CN=Barnabas cluster c 2"' in shown


@pytest.mark.parametrize("words", [("--renew", "--add-authority"), ("--renew",)])
def test_wrong_use_of_certificates_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    refused = call("certificates", str(tmp_path), *words)
    assert refused.exit_code in (1, 2)
    assert "error: " in refused.output
