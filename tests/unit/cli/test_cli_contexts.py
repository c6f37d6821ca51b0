"""Contexts: clusters with names, and the settings that commands take from them."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from barnabas.cli.app import build_app, given_noun
from barnabas.cli.contexts import Contexts, context_settings
from barnabas.cli.session import DEFAULT_BOOTSTRAP, LOCAL_BOOTSTRAP, with_bootstrap


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BARNABAS_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.delenv("BARNABAS_CONTEXT", raising=False)
    monkeypatch.delenv("BARNABAS_BOOTSTRAP", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "config"


def run(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(build_app(("context",)), ["context", *arguments])
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.output


def test_the_settings_of_a_context_are_used_unless_addresses_are_given() -> None:
    assert with_bootstrap(DEFAULT_BOOTSTRAP, {}) == {"bootstrap.servers": LOCAL_BOOTSTRAP}
    run("set", "prod", "-b", "kafka1:9093", "--registry", "http://schemas:8081", "-X", "sasl.username=alice")
    prod = {"bootstrap.servers": "kafka1:9093", "sasl.username": "alice"}
    assert with_bootstrap(DEFAULT_BOOTSTRAP, {}) == prod, "the first context is used; the clients get no registry"
    assert with_bootstrap(DEFAULT_BOOTSTRAP, {"acks": "1"}) == {**prod, "acks": "1"}
    assert with_bootstrap(LOCAL_BOOTSTRAP, {}) == {"bootstrap.servers": LOCAL_BOOTSTRAP}
    file = {"bootstrap.servers": "file:9092"}
    assert with_bootstrap(DEFAULT_BOOTSTRAP, file) == file
    assert context_settings()["schema.registry.url"] == "http://schemas:8081"


def test_use_and_the_variable_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    run("set", "a", "-b", "a:1")
    run("set", "b", "-b", "b:1")
    assert context_settings() == {"bootstrap.servers": "a:1"}
    run("use", "b")
    assert context_settings() == {"bootstrap.servers": "b:1"}
    monkeypatch.setenv("BARNABAS_CONTEXT", "a")
    assert context_settings() == {"bootstrap.servers": "a:1"}
    monkeypatch.delenv("BARNABAS_CONTEXT")
    run("use", "--none")
    assert context_settings() == {}
    run("use", "b")
    run("delete", "b", "--yes")
    assert Contexts().current is None
    assert [row["context"] for row in json.loads(run("list", "--json"))] == ["a"]


def test_a_file_is_copied_with_absolute_paths_and_secrets_are_not_shown(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secure").mkdir()
    (tmp_path / "secure" / "ca.pem").touch()
    (tmp_path / "secure" / "client.properties").write_text(
        "bootstrap.servers=kafka1:9093\nsecurity.protocol=SASL_SSL\nssl.truststore.location=ca.pem\n"
        "sasl.jaas.config=a secret;\nsasl.password=secret\n"
    )
    run("set", "prod", "--command-config", "secure/client.properties")
    path = folder / "contexts" / "prod.properties"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Contexts().read("prod")["ssl.truststore.location"] == str(tmp_path / "secure" / "ca.pem")
    assert "secret" not in run("show", "--json")
    assert json.loads(run("list", "--json")) == [{
        "context": "prod", "current": True, "bootstrap_servers": "kafka1:9093", "registry": None,
        "security_protocol": "SASL_SSL",
    }]  # fmt: skip
    run("set", "prod", "-X", "sasl.password=", "-X", "acks=1")
    assert "sasl.password" not in Contexts().read("prod")
    assert Contexts().read("prod")["acks"] == "1"


def test_a_user_without_a_home_has_no_contexts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("BARNABAS_CONFIG_DIR")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert with_bootstrap(DEFAULT_BOOTSTRAP, {}) == {"bootstrap.servers": LOCAL_BOOTSTRAP}
    (tmp_path / "file").touch()
    monkeypatch.setenv("BARNABAS_CONFIG_DIR", str(tmp_path / "file"))
    assert context_settings() == {}
    with pytest.raises(ValueError, match="BARNABAS_CONFIG_DIR"):
        Contexts().write("a", {})


def test_errors_say_what_to_do() -> None:
    assert "--bootstrap-server" in run("set", "x", code=2)
    assert "barnabas context list" in run("show", code=1)
    with pytest.raises(ValueError, match="makes one"):
        Contexts().use("x")
    run("set", "y", "-b", "y:1")
    with pytest.raises(ValueError, match="The contexts are: y"):
        Contexts().use("x")
    with pytest.raises(ValueError, match="not the name"):
        Contexts().read("../x")


@pytest.mark.parametrize(
    ("arguments", "noun"),
    [
        ([], ""), (["topics", "list"], "topics"), (["--context", "a", "topics"], "topics"),
        (["--context=a", "topics"], "topics"), (["--version"], "--version"), (["--context"], "--context"),
    ],
)  # fmt: skip
def test_the_noun_follows_the_context(arguments: list[str], noun: str) -> None:
    assert given_noun(["barnabas", *arguments]) == noun
