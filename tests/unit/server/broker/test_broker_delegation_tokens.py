"""Delegation tokens over the wire (Kafka's DelegationTokenRequestsTest with its two companions, and
DelegationTokenEndToEndAuthorizationTest), and the tools that manage them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from barnabas import Admin, Consumer, ErrorCode, KafkaError, Producer
from barnabas.cli.app import build_app
from barnabas.cli.kafka.settings.delegation_tokens import main as kafka_delegation_tokens
from barnabas.cli.security.acl_words import Grant, bindings_of
from barnabas.client.admin.tokens import DelegationToken
from barnabas.core.properties import parse_properties
from barnabas.protocol.security.acls import (
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.security.principals import ANONYMOUS, KafkaPrincipal
from barnabas.protocol.transport.ports import Peer
from barnabas.server.broker.authorization.loading import STANDARD
from barnabas.server.broker.handlers.controller.envelope import read_principal, write_principal
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.token_requests import may_manage_tokens
from barnabas.testing import EmbeddedBroker
from tests.progress import wait_until

USERS = ("admin", "alice", "bob", "carol")
ALICE, BOB, CAROL = (KafkaPrincipal("User", name) for name in USERS[1:])
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required "
SASL = {
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN
    + " ".join(f'user_{name}="{name}-secret"' for name in USERS)
    + ";",
}
TOKENS = {
    **SASL,
    "delegation.token.secret.key": "the key of all nodes",
    "delegation.token.expiry.check.interval.ms": "100",
    "authorizer.class.name": STANDARD,
    "super.users": "User:admin",
}
LISTENERS = "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"
E = ErrorCode


def address(broker: EmbeddedBroker, listener: str) -> str:
    assert broker.node is not None
    return next(f"127.0.0.1:{point.port}" for point in broker.node.endpoints if point.name == listener)


def settings(broker: EmbeddedBroker, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": address(broker, "SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }


def with_token(broker: EmbeddedBroker, token: DelegationToken, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
    return {
        "bootstrap.servers": address(broker, "SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": token.jaas_config,
    }


def refusal(call: Callable[[], object]) -> ErrorCode:
    """The code with which a call is refused; NONE if it succeeds."""
    try:
        call()
    except KafkaError as error:
        return error.code
    return E.NONE


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(TOKENS, listener=LISTENERS) as running:
        yield running


@pytest.fixture
def clients(broker: EmbeddedBroker) -> Iterator[Callable[[str], Admin]]:
    """Admin clients by the names of their users. All tokens and ACLs are removed after the test."""
    opened: dict[str, Admin] = {}

    def client(user: str) -> Admin:
        if user not in opened:
            opened[user] = Admin(settings(broker, user))
        return opened[user]

    yield client
    admin = client("admin")
    admin.delete_acls([AclBindingFilter()])
    for token in admin.describe_delegation_tokens():
        owner = client(token.owner.name)
        owner.expire_delegation_token(token.hmac)
    wait_until(lambda: admin.describe_delegation_tokens() == [], "all tokens are removed")
    for each in opened.values():
        each.close()


def visible(admin: Admin, *owners: KafkaPrincipal) -> set[str]:
    return {token.token_id for token in admin.describe_delegation_tokens(list(owners) or None)}


def allow(admin: Admin, kind: AclResourceType, name: str, operation: AclOperation, user: str) -> None:
    acl = AclBinding(kind, name, PatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
    assert admin.create_acls([acl]) == {acl: None}
    wait_until(lambda: acl in admin.describe_acls(), "the ACL is known")


Clients = Callable[[str], Admin]

# ---- the four APIs


def test_tokens_are_created_described_renewed_and_expired(clients: Clients) -> None:
    """The steps of DelegationTokenRequestsTest."""
    admin = clients("alice")
    first = admin.create_delegation_token(renewers=[BOB])
    wait_until(lambda: admin.describe_delegation_tokens() == [first], "the token is described as it was created")
    second = admin.create_delegation_token(renewers=[CAROL])
    wait_until(lambda: visible(admin) == {first.token_id, second.token_id}, "both tokens are described")
    assert visible(admin, CAROL) == {second.token_id}
    assert visible(admin, ALICE) == {first.token_id, second.token_id}
    assert admin.describe_delegation_tokens([]) == []
    assert admin.describe_delegation_tokens([KafkaPrincipal("User", "unknown")]) == []

    expiry = admin.renew_delegation_token(first.hmac)
    assert expiry >= first.expiry_timestamp

    def expiry_of_first() -> int:
        return next(t.expiry_timestamp for t in admin.describe_delegation_tokens() if t.token_id == first.token_id)

    wait_until(lambda: expiry_of_first() == expiry, "the new expiry is described")
    assert admin.expire_delegation_token(first.hmac, period_ms=3_600_000) < expiry
    for token in (first, second):
        admin.expire_delegation_token(token.hmac)
    wait_until(lambda: admin.describe_delegation_tokens() == [], "both tokens are removed")
    for call in (admin.renew_delegation_token, admin.expire_delegation_token):
        assert refusal(lambda c=call: c(first.hmac)) is E.DELEGATION_TOKEN_NOT_FOUND  # type: ignore[misc]
    group = KafkaPrincipal("Group", "g")
    assert refusal(lambda: admin.create_delegation_token(renewers=[group])) is E.INVALID_PRINCIPAL_TYPE


def test_an_expired_token_is_removed(clients: Clients) -> None:
    admin = clients("alice")
    token = admin.create_delegation_token(max_lifetime_ms=1_000)
    wait_until(lambda: visible(admin) == {token.token_id}, "the token is described")
    wait_until(lambda: visible(admin) == set(), "the token is removed")
    assert refusal(lambda: admin.expire_delegation_token(token.hmac)) is E.DELEGATION_TOKEN_NOT_FOUND


def test_over_plaintext_every_request_is_refused(broker: EmbeddedBroker) -> None:
    with Admin({"bootstrap.servers": address(broker, "PLAINTEXT")}) as admin:
        for call in (
            lambda: admin.create_delegation_token(),
            lambda: admin.describe_delegation_tokens(),
            lambda: admin.renew_delegation_token(b""),
            lambda: admin.expire_delegation_token(b""),
        ):
            assert refusal(call) is E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_without_a_secret_key_every_request_is_refused() -> None:
    with EmbeddedBroker(SASL, listener=LISTENERS) as broker, Admin(settings(broker, "alice")) as admin:
        for call in (
            lambda: admin.create_delegation_token(),
            lambda: admin.describe_delegation_tokens(),
            lambda: admin.renew_delegation_token(b""),
            lambda: admin.expire_delegation_token(b""),
        ):
            assert refusal(call) is E.DELEGATION_TOKEN_AUTH_DISABLED
        with pytest.raises(KafkaError, match=r"Set delegation\.token\.secret\.key to the same text on every node"):
            admin.create_delegation_token()


# ---- logging in


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_with_a_token_has_the_rights_of_its_owner(
    broker: EmbeddedBroker, clients: Clients, mechanism: str
) -> None:
    topic = f"orders-{mechanism.lower()}"
    clients("admin").create_topic(topic, 1, 1)
    rights = Grant([topic], ["g"], principals=["User:alice"], hosts=["*"], operations=["All"])
    clients("admin").create_acls(bindings_of(rights))
    token = clients("alice").create_delegation_token()
    config = with_token(broker, token, mechanism)
    wait_until(lambda: visible(clients("alice")) == {token.token_id}, "the broker knows the token")
    with Producer(config) as producer:
        producer.send(topic, b"one").result(30)
    with Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        found: list[bytes | None] = []
        while not found:
            found += [record.value for record in consumer.poll(1_000)]
    assert found == [b"one"]
    with Admin(config) as admin:
        assert refusal(lambda: admin.create_topic("other", 1, 1)) is E.TOPIC_AUTHORIZATION_FAILED
        for call in (
            lambda: admin.create_delegation_token(),
            lambda: admin.describe_delegation_tokens(),
            lambda: admin.renew_delegation_token(token.hmac),
            lambda: admin.expire_delegation_token(token.hmac),
        ):
            assert refusal(call) is E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_a_new_token_logs_in_at_once(broker: EmbeddedBroker, clients: Clients) -> None:
    """The broker that has forwarded the request knows the token when it answers."""
    for _ in range(20):
        token = clients("alice").create_delegation_token()
        with Admin(with_token(broker, token)) as admin:
            assert refusal(lambda a=admin: a.describe_cluster()) is E.NONE  # type: ignore[misc]


def test_a_removed_token_does_not_log_in(broker: EmbeddedBroker, clients: Clients) -> None:
    token = clients("alice").create_delegation_token()
    wait_until(lambda: visible(clients("alice")) == {token.token_id}, "the broker knows the token")
    with Admin(with_token(broker, token)) as admin:
        assert refusal(lambda: admin.describe_cluster()) is E.NONE
    clients("alice").expire_delegation_token(token.hmac)
    wait_until(lambda: visible(clients("alice")) == set(), "the token is removed")
    with Admin(with_token(broker, token)) as admin:
        assert refusal(lambda: admin.describe_cluster()) is E.SASL_AUTHENTICATION_FAILED


def test_a_session_ends_with_the_token_that_began_it(broker: EmbeddedBroker, clients: Clients) -> None:
    """The client authenticates anew with the same token, until the token has expired."""
    token = clients("alice").create_delegation_token(max_lifetime_ms=2_000)
    wait_until(lambda: visible(clients("alice")) == {token.token_id}, "the broker knows the token")
    with Admin({**with_token(broker, token), "default.api.timeout.ms": 5_000}) as admin:
        assert refusal(lambda: admin.describe_cluster()) is E.NONE
        wait_until(
            lambda: refusal(lambda: admin.describe_cluster()) is E.SASL_AUTHENTICATION_FAILED, "the session has ended"
        )


# ---- rights


def test_a_token_for_another_owner_needs_a_right(broker: EmbeddedBroker, clients: Clients) -> None:
    alice = clients("alice")
    assert refusal(lambda: alice.create_delegation_token(owner=BOB)) is E.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert refusal(lambda: alice.create_delegation_token(owner=ALICE)) is E.NONE
    allow(clients("admin"), AclResourceType.USER, "User:bob", AclOperation.CREATE_TOKENS, "alice")
    token = alice.create_delegation_token(owner=BOB)
    assert (token.owner, token.requester) == (BOB, ALICE)
    wait_until(lambda: token.token_id in visible(clients("bob")), "the owner sees the token")
    assert token.token_id in visible(alice, BOB), "so does the client that has requested it"
    assert refusal(lambda: alice.renew_delegation_token(token.hmac)) is E.DELEGATION_TOKEN_OWNER_MISMATCH
    assert refusal(lambda: alice.expire_delegation_token(token.hmac)) is E.DELEGATION_TOKEN_OWNER_MISMATCH
    assert refusal(lambda: clients("bob").renew_delegation_token(token.hmac)) is E.NONE
    assert refusal(lambda: alice.create_delegation_token(owner=CAROL)) is E.DELEGATION_TOKEN_AUTHORIZATION_FAILED


def test_owners_and_renewers_see_their_tokens_and_others_need_a_right(clients: Clients) -> None:
    token = clients("alice").create_delegation_token(renewers=[BOB]).token_id
    other = clients("alice").create_delegation_token().token_id
    wait_until(lambda: visible(clients("alice")) == {token, other}, "the owner sees the tokens")
    assert visible(clients("bob")) == {token}
    assert visible(clients("carol")) == visible(clients("carol"), ALICE) == set()
    assert visible(clients("admin")) == {token, other}
    allow(clients("admin"), AclResourceType.DELEGATION_TOKEN, other, AclOperation.DESCRIBE, "carol")
    assert visible(clients("carol")) == {other}
    allow(clients("admin"), AclResourceType.USER, "User:alice", AclOperation.DESCRIBE_TOKENS, "carol")
    assert visible(clients("carol")) == {token, other}
    assert visible(clients("carol"), BOB) == {token}


@pytest.mark.parametrize(
    ("protocol", "principal", "token_authenticated", "is_forwarded", "allowed"),
    [
        ("SASL_SSL", ALICE, False, False, True),
        ("SASL_PLAINTEXT", ALICE, False, False, True),
        ("SASL_SSL", ALICE, True, False, False),
        ("SSL", KafkaPrincipal("User", "CN=alice"), False, False, True),
        ("SSL", ANONYMOUS, False, False, False),
        ("PLAINTEXT", ANONYMOUS, False, False, False),
        ("PLAINTEXT", ALICE, False, True, True),  # from a broker, which has checked its client
        ("SSL", ANONYMOUS, False, True, True),
        ("PLAINTEXT", ALICE, True, True, False),
    ],
)
def test_the_connection_must_prove_the_identity_of_the_client(
    protocol: str, principal: KafkaPrincipal, token_authenticated: bool, is_forwarded: bool, allowed: bool
) -> None:
    peer = Peer(1, "L", protocol, "127.0.0.1", 5, principal, token_authenticated)
    ctx = RequestContext(38, 3, 1, None, peer, 0, 0.0, is_forwarded=is_forwarded)
    assert may_manage_tokens(ctx) is allowed


@pytest.mark.parametrize("token_authenticated", [False, True])
def test_an_envelope_says_whether_the_client_has_used_a_token(token_authenticated: bool) -> None:
    data = write_principal(ALICE, token_authenticated=token_authenticated)
    assert read_principal(data) == (ALICE, token_authenticated)


# ---- tools


def test_the_nouns_of_tokens(broker: EmbeddedBroker, clients: Clients, tmp_path: Path) -> None:
    app = build_app(("tokens",))
    config = tmp_path / "alice.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings(broker, "alice").items()))

    def tool(*words: str, fails: bool = False) -> str:
        places = ["--bootstrap-server", address(broker, "SASL_PLAINTEXT"), "--command-config", str(config)]
        result = CliRunner().invoke(app, ["tokens", *words, *places])
        assert (result.exit_code != 0) == fails, result.output
        return result.output

    job = tmp_path / "job.properties"
    [made] = json.loads(
        tool("create", "--renewer", "User:bob", "--max-lifetime", "P2D", "--jaas-file", str(job), "--json")
    )
    assert (made["owner"], made["requester"], made["renewers"]) == ("User:alice", "User:alice", ["User:bob"])
    assert made["maxTimestamp"] - made["issueTimestamp"] == 2 * 86_400_000
    assert job.stat().st_mode & 0o777 == 0o600
    token_id = made["tokenId"]
    wait_until(lambda: token_id in tool("list"), "the token is listed")
    login = {
        **with_token(broker, clients("alice").describe_delegation_tokens()[0]),
        **parse_properties(job.read_text()),
    }
    with Admin(login) as admin:
        assert refusal(lambda: admin.describe_cluster()) is E.NONE
    assert json.loads(tool("describe", token_id, "--json"))[0] == made
    assert "expires at" in tool("renew", token_id, "--period", "PT1H")
    assert token_id in tool("list", "--owner", "User:bob")
    assert "no delegation tokens" in tool("list", "--owner", "User:carol")
    assert "expires at" in tool("expire", token_id, "--period", "PT2H")
    assert "is removed" in tool("expire", token_id, "--yes")
    wait_until(lambda: "no delegation tokens" in tool("list"), "the token is removed")
    assert "there is no token" in tool("renew", token_id, fails=True)
    assert "is not a principal" in str(CliRunner().invoke(app, ["tokens", "create", "--owner", "bob"]).exception)


def test_kafka_delegation_tokens(
    broker: EmbeddedBroker,
    clients: Clients,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The steps of Kafka's DelegationTokenCommandTest, with a broker."""
    config = tmp_path / "alice.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings(broker, "alice").items()))

    def tool(*words: str) -> str:
        places = ["--bootstrap-server", address(broker, "SASL_PLAINTEXT"), "--command-config", str(config)]
        monkeypatch.setattr("sys.argv", ["kafka-delegation-tokens", *places, *words])
        kafka_delegation_tokens()
        return capsys.readouterr().out

    made = tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    assert "Calling create token operation with renewers :[User:bob] , max-life-time-period :-1" in made
    token_id, hmac, *rest = made.splitlines()[-1].split()
    assert rest[:3] == ["User:alice", "User:alice", "[User:bob]"]
    wait_until(lambda: "Total number of tokens : 1" in tool("--describe"), "the token is described")
    assert token_id in tool("--describe", "--owner-principal", "User:bob")
    assert "Total number of tokens : 0" in tool("--describe", "--owner-principal", "User:carol")
    assert "Completed renew operation. New expiry date : 2" in tool(
        "--renew", "--hmac", hmac, "--renew-time-period", "-1"
    )
    assert "Completed expire operation." in tool("--expire", "--hmac", hmac, "--expiry-time-period", "-1")
    wait_until(lambda: "Total number of tokens : 0" in tool("--describe"), "the token is removed")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--create", "Missing required argument --max-life-time-period"),
        ("--renew --hmac eA==", "Missing required argument --renew-time-period"),
        ("--expire --expiry-time-period 1", "Missing required argument --hmac"),
        ("--describe --hmac eA==", "can't be used with option --hmac"),
        ("--create --max-life-time-period 1 --hmac eA==", "can't be used with option --hmac"),
        ("--create --max-life-time-period 1 --owner-principal bob", "is not a principal"),
        ("--renew --renew-time-period 1 --hmac ???", "--hmac is not base64"),
        ("--create --renew", "not allowed with argument"),
    ],
)
def test_kafka_delegation_tokens_refuses_what_kafka_refuses(
    words: str, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kafka-delegation-tokens", "--bootstrap-server", "h:1", *words.split()])
    with pytest.raises(SystemExit) as left:
        kafka_delegation_tokens()
    assert left.value.code == 1
    assert reason in capsys.readouterr().err
