"""Three nodes with SASL and ACLs: principals travel to the controller, and ACLs survive its death (Kafka's
EndToEndAuthorizationTest)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas import Admin, Consumer, ErrorCode, KafkaError, Producer
from barnabas.cli.security.acl_words import Grant, bindings_of, consumer_grants, producer_grants
from barnabas.protocol.security.acls import AclBinding, AclBindingFilter, PatternType
from barnabas.server.broker.authorization.loading import STANDARD
from barnabas.testing.process_cluster import ClusterProcess
from tests.progress import wait_until

USERS = ("node", "admin", "alice", "bob", "carol")
SETTINGS = (
    "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms=PLAIN",
    "sasl.mechanism.inter.broker.protocol=PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="node" password="node-secret" ' + " ".join(f'user_{name}="{name}-secret"' for name in USERS) + ";",
    f"authorizer.class.name={STANDARD}",
    "super.users=User:node;User:admin;User:ANONYMOUS",
    "default.replication.factor=3",
    "min.insync.replicas=2",
)


def settings_of(user: str, bootstrap_servers: str) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }


def refusal(call: Callable[[], object]) -> ErrorCode:
    """The code with which a call is refused; NONE if it succeeds."""
    try:
        call()
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def grant(servers: str) -> set[AclBinding]:
    """alice produces to topics that begin with `team-`, and creates them; bob consumes team-orders in group billing."""
    prefixed = Grant(["team-"], principals=["User:alice"], hosts=["*"], pattern_type=PatternType.PREFIXED)
    reading = Grant(["team-orders"], ["billing"], principals=["User:bob"], hosts=["*"])
    bindings = {*producer_grants(prefixed), *consumer_grants(reading)}
    with Admin(settings_of("admin", servers)) as admin:
        assert set(admin.create_acls(list(bindings)).values()) == {None}
    wait_until_all_know(servers, bindings)
    return bindings


def wait_until_all_know(servers: str, bindings: set[AclBinding]) -> None:
    """A change of ACLs is answered when the controllers have committed it; each broker reads it a moment later."""
    for address in servers.split(","):
        with Admin(settings_of("admin", address)) as admin:
            wait_until(lambda a=admin: set(a.describe_acls()) == bindings, f"{address} knows the ACLs")


def write(servers: str, user: str, value: bytes, topic: str = "team-orders") -> None:
    with Producer(settings_of(user, servers)) as producer:
        producer.send(topic, value).result(60)


def read(servers: str, user: str, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    config = {**settings_of(user, servers), "group.id": "billing", "auto.offset.reset": "earliest"}
    with Consumer({**config, "enable.auto.commit": "false"}) as consumer:
        consumer.subscribe(["team-orders"])
        while len(found) < count:
            found += [record.value for record in consumer.poll(1_000)]
    return found


@pytest.mark.system
def test_acls_hold_on_every_node_and_after_the_death_of_one(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, settings=SETTINGS) as cluster:
        servers = cluster.bootstrap_servers
        bindings = grant(servers)
        # Each broker forwards the request to the active controller, which authorizes alice and not the broker.
        for number, address in enumerate(servers.split(",")):
            with Admin(settings_of("alice", address)) as alice:
                assert refusal(lambda a=alice, n=number: a.create_topic(f"team-{n}", 1)) is ErrorCode.NONE
                assert refusal(lambda a=alice: a.create_topic("other", 1)) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
                assert refusal(lambda a=alice: a.describe_acls()) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        with Admin(settings_of("alice", servers)) as alice:
            alice.create_topic("team-orders", 3)
            assert {topic.name[:5] for topic in alice.list_topics()} == {"team-"}
        with Admin(settings_of("carol", servers)) as carol:
            assert carol.list_topics() == []
        write(servers, "alice", b"one")
        assert read(servers, "bob", 1) == [b"one"]
        assert refusal(lambda: write(servers, "bob", b"no")) in (
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
        assert refusal(lambda: read(servers, "alice", 1)) is ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert refusal(lambda: read(servers, "carol", 1)) is not ErrorCode.NONE

        cluster.node(1).kill()
        left = ",".join(servers.split(",")[1:])
        write(left, "alice", b"two")
        assert sorted(value or b"" for value in read(left, "bob", 2)) == [b"one", b"two"]
        assert refusal(lambda: write(left, "carol", b"no")) is not ErrorCode.NONE
        with Admin(settings_of("admin", left)) as admin:
            assert set(admin.describe_acls()) == bindings
            denial = Grant(["team-orders"], principals=["User:bob"], hosts=["*"], operations=["Read"], deny=True)
            admin.create_acls(bindings_of(denial))
            wait_until(
                lambda: refusal(lambda: read(left, "bob", 2)) is ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "bob may not read any more",
            )
            admin.delete_acls([AclBindingFilter(principal="User:bob")])
        wait_until_all_know(left, {acl for acl in bindings if acl.principal == "User:alice"})
