"""`barnabas acls`, `kafka-acls` and the admin client's ACLs (Kafka's AclCommandTest), with a broker that authorizes."""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from barnabas import Admin, ErrorCode, KafkaError
from barnabas.cli.app import build_app
from barnabas.cli.kafka.settings.acls import main
from barnabas.cli.security.acl_words import (
    Grant,
    bindings_of,
    consumer_grants,
    filters_of,
    operation_named,
    pattern_type_named,
    producer_grants,
)
from barnabas.protocol.security.acls import (
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from barnabas.protocol.security.operations import AclOperation
from barnabas.server.broker.authorization.loading import STANDARD
from barnabas.testing import EmbeddedBroker

SECURED = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
TOPIC, ALLOW = AclResourceType.TOPIC, AclPermissionType.ALLOW
READ = AclBinding(TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, ALLOW)
Tool = Callable[..., str]


# ---- from options to ACLs


def words(acls: list[AclBinding]) -> set[str]:
    return {f"{AclResourceType(a.resource_type).name} {a.resource_name} {AclOperation(a.operation).name}" for a in acls}


def test_a_producer_writes_describes_and_creates() -> None:
    grant = Grant(["t"], ["g"], ["x"], principals=["User:a"], hosts=["*"])
    assert words(producer_grants(grant)) == {
        "TOPIC t WRITE",
        "TOPIC t DESCRIBE",
        "TOPIC t CREATE",
        "TRANSACTIONAL_ID x WRITE",
        "TRANSACTIONAL_ID x DESCRIBE",
    }
    idempotent = words(producer_grants(grant, idempotent=True)) - words(producer_grants(grant))
    assert idempotent == {"CLUSTER kafka-cluster IDEMPOTENT_WRITE"}


def test_a_consumer_reads_topics_and_groups() -> None:
    grant = Grant(["t"], ["g"], principals=["User:a"], hosts=["*"])
    assert words(consumer_grants(grant)) == {"TOPIC t READ", "TOPIC t DESCRIBE", "GROUP g READ"}


def test_a_grant_is_the_product_of_its_parts() -> None:
    grant = Grant(
        ["a", "b"], principals=["User:x", "User:y"], hosts=["1.1.1.1", "*"], operations=["Read", "describe-configs"]
    )
    assert len(set(bindings_of(grant))) == 16


@pytest.mark.parametrize(
    ("grant", "message"),
    [
        (Grant(["t"], principals=["alice"], hosts=["*"], operations=["Read"]), "not a principal"),
        (Grant(["t"], principals=["User:a"], hosts=["*"], operations=["Fly"]), "Fly is not an operation"),
        (
            Grant(None, ["g"], principals=["User:a"], hosts=["*"], operations=["Write"]),
            "GROUP only supports operations",
        ),
        (Grant(principals=["User:a"], hosts=["*"], operations=["Read"]), "name a resource"),
        (
            Grant(["t"], principals=["User:a"], hosts=["*"], operations=["Read"], pattern_type=PatternType.MATCH),
            "can select ACLs",
        ),
    ],
)
def test_a_wrong_grant_is_refused_with_the_reason(grant: Grant, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bindings_of(grant)


def test_a_filter_compares_only_what_the_options_name() -> None:
    assert filters_of(Grant()) == [AclBindingFilter()]
    [found] = filters_of(Grant(["t"], principals=["User:a"], pattern_type=PatternType.ANY))
    assert found == AclBindingFilter(TOPIC, "t", PatternType.ANY, "User:a")


def test_names_have_several_spellings() -> None:
    assert {operation_named(text) for text in ("IdempotentWrite", "idempotent_write", " IDEMPOTENT-WRITE")} == {
        AclOperation.IDEMPOTENT_WRITE
    }
    assert pattern_type_named("Prefixed") is PatternType.PREFIXED
    with pytest.raises(ValueError, match="not a pattern type"):
        pattern_type_named("unknown")


# ---- against a broker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(SECURED) as running:
        yield running


@pytest.fixture
def tool(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Tool]:
    """Runs `kafka-acls` and returns what it prints."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["kafka-acls", "--bootstrap-server", broker.bootstrap_servers, *arguments])
        main()
        return capsys.readouterr().out

    yield run
    run("--remove", "--force", "--topic", "orders", "--resource-pattern-type", "match")
    run("--remove", "--force", "--topic", "or", "--resource-pattern-type", "any")
    run("--remove", "--force", "--group", "billing", "--cluster")


def test_the_admin_client_creates_describes_and_deletes_acls(broker: EmbeddedBroker) -> None:
    with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        prefixed = READ._replace(resource_name="or", pattern_type=PatternType.PREFIXED)
        wrong = READ._replace(resource_name="")
        results = admin.create_acls([READ, prefixed, wrong, READ])
        assert results[READ] is None
        assert results[prefixed] is None
        error = results[wrong]
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.INVALID_REQUEST
        assert admin.describe_acls() == sorted([READ, prefixed])
        assert admin.describe_acls(AclBindingFilter(TOPIC, "orders", PatternType.LITERAL)) == [READ]
        assert admin.describe_acls(AclBindingFilter(TOPIC, "orders", PatternType.MATCH)) == sorted([READ, prefixed])
        nothing = AclBindingFilter(principal="User:nobody")
        everything = AclBindingFilter()
        assert admin.delete_acls([nothing, everything]) == {nothing: [], everything: sorted([READ, prefixed])}
        assert admin.describe_acls() == []
        assert admin.create_acls([]) == {}
        assert admin.delete_acls([]) == {}


def test_without_an_authorizer_security_is_disabled() -> None:
    with EmbeddedBroker() as open_broker, Admin({"bootstrap.servers": open_broker.bootstrap_servers}) as admin:
        with pytest.raises(KafkaError, match=r"authorizer\.class\.name") as raised:
            admin.describe_acls()
        assert raised.value.code is ErrorCode.SECURITY_DISABLED
        error = admin.create_acls([READ])[READ]
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.SECURITY_DISABLED


def test_acls_survive_a_restart(tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    with (
        EmbeddedBroker(SECURED, data_dir=directory) as first,
        Admin({"bootstrap.servers": first.bootstrap_servers}) as admin,
    ):
        admin.create_acls([READ, READ._replace(operation=AclOperation.WRITE)])
        admin.delete_acls([AclBindingFilter(operation=AclOperation.WRITE)])
    with (
        EmbeddedBroker(SECURED, data_dir=directory) as second,
        Admin({"bootstrap.servers": second.bootstrap_servers}) as admin,
    ):
        assert admin.describe_acls() == [READ]


def test_kafka_acls_prints_what_kafkas_tool_prints(tool: Tool) -> None:
    pattern = "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)"
    entry = "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)"
    added = tool("--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    assert added == f"Adding ACLs for resource `{pattern}`: \n \t{entry} \n\n"
    assert tool("--list", "--topic", "orders") == f"Current ACLs for resource `{pattern}`: \n \t{entry} \n\n"
    assert tool("--list") == f"Current ACLs for resource `{pattern}`: \n \t{entry} \n\n"
    assert tool("--list", "--principal", "User:bob") == "ACLs for principal `User:bob`\n"
    assert entry in tool("--list", "--principal", "User:alice")
    assert tool("--remove", "--force", "--topic", "orders") == ""
    assert tool("--list") == ""


def test_kafka_acls_knows_producers_and_consumers(tool: Tool) -> None:
    tool("--add", "--allow-principal", "User:p", "--producer", "--idempotent", "--topic", "orders")
    tool("--add", "--allow-principal", "User:c", "--consumer", "--topic", "orders", "--group", "billing")
    producer = tool("--list", "--principal", "User:p")
    assert {word.strip("(),") for word in producer.split() if word.startswith("operation=")} == {
        "operation=WRITE", "operation=DESCRIBE", "operation=CREATE", "operation=IDEMPOTENT_WRITE"
    }  # fmt: skip
    assert "resourceType=CLUSTER, name=kafka-cluster" in producer
    consumer = tool("--list", "--principal", "User:c")
    assert "resourceType=GROUP, name=billing" in consumer
    assert consumer.count("operation=READ") == 2


def test_kafka_acls_removes_single_entries_after_a_question(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(
        "--add",
        "--allow-principal",
        "User:a",
        "--allow-principal",
        "User:b",
        "--operation",
        "Read",
        "--topic",
        "orders",
    )
    tool("--add", "--deny-principal", "User:a", "--deny-host", "1.1.1.1", "--topic", "orders")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert "(y/n)" in tool("--remove", "--topic", "orders", "--allow-principal", "User:a", "--operation", "Read")
    assert tool("--list").count("principal=User:a") == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("Y\n"))
    tool("--remove", "--topic", "orders", "--allow-principal", "User:a", "--operation", "Read")
    left = tool("--list")
    assert "(principal=User:a, host=1.1.1.1, operation=ALL, permissionType=DENY)" in left
    assert "(principal=User:b, host=*, operation=READ, permissionType=ALLOW)" in left
    assert left.count("principal=") == 2


def test_kafka_acls_matches_patterns(tool: Tool) -> None:
    tool(
        "--add",
        "--allow-principal",
        "User:a",
        "--operation",
        "Read",
        "--topic",
        "or",
        "--resource-pattern-type",
        "prefixed",
    )
    assert tool("--list", "--topic", "orders") == ""
    assert "patternType=PREFIXED" in tool("--list", "--topic", "orders", "--resource-pattern-type", "match")
    assert tool("--list", "--topic", "orders", "--resource-pattern-type", "any") == ""
    tool("--remove", "--force", "--topic", "orders", "--resource-pattern-type", "match")
    assert tool("--list") == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--add", "--allow-principal", "User:a"), "You must provide at least one resource"),
        (("--add", "--topic", "t"), "You must specify one of: --allow-principal, --deny-principal"),
        (("--add", "--list", "--topic", "t"), "not allowed with argument"),
        (("--add", "--topic", "t", "--principal", "User:a"), "only available if --list is set"),
        (("--add", "--producer", "--allow-principal", "User:a"), "With --producer you must specify a --topic"),
        (("--add", "--consumer", "--topic", "t", "--allow-principal", "User:a"), "With --consumer you must specify"),
        (("--add", "--idempotent", "--topic", "t"), "only available if --producer is set"),
        (("--add", "--producer", "--topic", "t", "--operation", "Read"), "cannot be used with --operation"),
        (("--list", "--producer", "--topic", "t"), "--list cannot be used with"),
        (
            ("--add", "--topic", "t", "--allow-principal", "User:a", "--resource-pattern-type", "match"),
            "'MATCH' is not valid when adding acls",
        ),
        (("--add", "--group", "g", "--allow-principal", "User:a", "--operation", "Write"), "only supports operations"),
        (("--add", "--topic", "t", "--allow-principal", "a"), "not a principal"),
    ],
)
def test_kafka_acls_refuses_what_kafkas_tool_refuses(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kafka-acls", "--bootstrap-server", "127.0.0.1:1", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 1
    assert message in capsys.readouterr().err


def test_the_commands_of_the_security_page_run(broker: EmbeddedBroker, tool: Tool) -> None:
    page = (Path(__file__).parents[3] / "docs" / "SECURITY.md").read_text(encoding="utf-8")
    section = page.partition("\n## Authorization\n")[2]
    lines = [shlex.split(line) for line in section.splitlines() if line.startswith("barnabas acls ")]
    assert len(lines) >= 5
    for _, *arguments in lines:
        answer = ["--yes"] if arguments[1] == "remove" else []
        result = CliRunner().invoke(build_app(("acls",)), [*arguments, *answer, "-b", broker.bootstrap_servers])
        assert result.exit_code == 0, result.output
    assert "User:bob" in tool("--list")
    tool("--remove", "--force", "--topic", "logs-", "--topic", "*", "--resource-pattern-type", "any")


def test_barnabas_acls_adds_lists_and_removes(broker: EmbeddedBroker, tool: Tool) -> None:
    runner = CliRunner()

    def run(*arguments: str) -> str:
        result = runner.invoke(build_app(("acls",)), ["acls", *arguments, "-b", broker.bootstrap_servers])
        assert result.exit_code == 0, result.output
        return result.output

    run("add", "--principal", "User:alice", "--consumer", "--topic", "orders", "--group", "billing")
    run("add", "--principal", "User:bob", "--operation", "Read", "--topic", "or", "--prefixed", "--deny")
    listed = run("list", "--topic", "orders", "--pattern", "match")
    assert "User:alice" in listed
    assert "DENY" in listed
    assert "User:bob" not in run("list", "--principal", "User:alice")
    assert "would remove" in run("remove", "--topic", "orders", "--dry-run")
    run("remove", "--topic", "orders", "--yes")
    assert "no access control entries" in run("list", "--topic", "orders")
    assert "billing" in run("list", "--json")
