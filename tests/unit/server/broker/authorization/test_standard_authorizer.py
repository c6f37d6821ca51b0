"""The authorizer on images of the metadata, its audit log, and its configs (Kafka's StandardAuthorizerTest)."""

from __future__ import annotations

import logging
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.core.config import ConfigError
from barnabas.core.errors import KafkaError
from barnabas.core.telemetry import Metrics
from barnabas.core.telemetry.log import AUDIT_LOGGER
from barnabas.protocol.security.acls import AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.server.broker.authorization.loading import STANDARD, build_authorizer
from barnabas.server.broker.authorization.ports import Action, AuthorizedClient
from barnabas.server.broker.authorization.standard import TRACE, StandardAuthorizer, parse_super_users
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.loader import Loader
from barnabas.server.metadata.ports import CommittedBatch, LoadedSnapshot
from barnabas.server.metadata.publish import Publisher
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.other import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from barnabas.server.metadata.snapshot import image_records
from tests.logs import logged

ALICE = AuthorizedClient(KafkaPrincipal("User", "alice"), "10.0.0.1", "Fetch")
READ = Action(AclOperation.READ, AclResourceType.TOPIC, "orders", 2)


def record(
    number: int, operation: AclOperation = AclOperation.READ, *, deny: bool = False, name: str = "orders"
) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=UUID(int=number),
        resource_type=AclResourceType.TOPIC,
        resource_name=name,
        pattern_type=PatternType.LITERAL,
        principal="User:alice",
        host="*",
        operation=operation,
        permission_type=AclPermissionType.DENY if deny else AclPermissionType.ALLOW,
    )


class Cluster:
    """A metadata log whose images an authorizer follows."""

    def __init__(self, **configs: str) -> None:
        self.authorizer = StandardAuthorizer({name.replace("_", "."): value for name, value in configs.items()})
        self.publisher = Publisher(ClusterImage(cluster_id="c"))
        self.publisher.subscribe(self.authorizer)
        self.loader = Loader(self.publisher)
        self.authorizer.on_caught_up()

    def commit(self, *records: MetadataRecord) -> None:
        self.loader.on_commit(CommittedBatch(self.loader.loaded_offset + 1, 1, 0, records))

    def allows(self, operation: AclOperation = AclOperation.READ) -> bool:
        return self.authorizer.authorize(ALICE, READ._replace(operation=operation))


def test_committed_acls_take_effect() -> None:
    cluster = Cluster()
    assert not cluster.allows()
    cluster.commit(record(1))
    assert cluster.allows()
    cluster.commit(record(2, deny=True))
    assert not cluster.allows()
    cluster.commit(RemoveAccessControlEntryRecord(id=UUID(int=2)))
    assert cluster.allows()


def test_a_removed_acl_leaves_the_others_also_after_a_snapshot() -> None:
    """CVE-2024-27309."""
    cluster = Cluster()
    cluster.commit(
        record(1), record(2, AclOperation.WRITE), record(3, AclOperation.ALTER, deny=True), record(4, AclOperation.ALL)
    )
    cluster.commit(RemoveAccessControlEntryRecord(id=UUID(int=4)))

    def check(found: Cluster) -> None:
        assert found.allows(AclOperation.READ)
        assert found.allows(AclOperation.WRITE)
        assert not found.allows(AclOperation.ALTER)
        assert not found.allows(AclOperation.DELETE)

    check(cluster)
    image = cluster.publisher.image
    restarted = Cluster()
    restarted.commit(record(9, AclOperation.DELETE))  # a follower that has fallen behind replaces its state
    restarted.loader.on_snapshot(LoadedSnapshot(image.offset + 1, 1, 0, list(image_records(image))))
    check(restarted)
    assert restarted.publisher.image.same_state_as(image)


def test_super_users_pass_whatever_the_acls_are() -> None:
    cluster = Cluster(super_users="User:admin;User:alice")
    cluster.commit(record(1, AclOperation.ALL, deny=True))
    assert cluster.allows()
    assert cluster.authorizer.authorize_by_resource_type(ALICE, AclOperation.WRITE, AclResourceType.TOPIC)


def test_super_users_are_compared_exactly() -> None:
    assert not Cluster(super_users="User:Alice;Group:alice;User:alice2").allows()


def test_names_with_commas_and_equal_signs_are_super_users() -> None:
    found = parse_super_users(" User:CN=a,OU=b ;User:c; ")
    assert found == {"User:CN=a,OU=b", "User:c"}


def test_until_the_metadata_is_read_only_super_users_pass() -> None:
    authorizer = StandardAuthorizer({"super.users": "User:admin", "allow.everyone.if.no.acl.found": "true"})
    admin = ALICE._replace(principal=KafkaPrincipal("User", "admin"))
    assert authorizer.authorize(admin, READ)
    with pytest.raises(KafkaError, match="has not read the ACLs"):
        authorizer.authorize(ALICE, READ)
    with pytest.raises(KafkaError, match="has not read the ACLs"):
        authorizer.authorize_by_resource_type(ALICE, AclOperation.WRITE, AclResourceType.TOPIC)
    authorizer.on_caught_up()
    assert authorizer.authorize(ALICE, READ)


def test_the_audit_log_is_in_the_words_of_kafka(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(super_users="User:admin")
    caplog.set_level(TRACE, AUDIT_LOGGER)
    cluster.allows()
    cluster.commit(record(1))
    cluster.allows()
    cluster.authorizer.authorize(ALICE._replace(principal=KafkaPrincipal("User", "admin")), READ)
    group = Action(AclOperation.READ, AclResourceType.TRANSACTIONAL_ID, "tx", log_if_denied=False)
    cluster.authorizer.authorize(ALICE, group)
    start = "Principal = User:alice is "
    assert [(entry.name, entry.levelno, entry.getMessage()) for entry in logged(caplog, AUDIT_LOGGER)] == [
        (
            AUDIT_LOGGER,
            logging.INFO,
            f"{start}Denied operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:orders for request = "
            "Fetch with resourceRefCount = 2 based on rule DefaultDeny",
        ),
        (
            AUDIT_LOGGER,
            logging.DEBUG,
            f"{start}Allowed operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:orders for request = "
            "Fetch with resourceRefCount = 2 based on rule MatchingAcl(acl=StandardAcl(resourceType=TOPIC, "
            "resourceName=orders, patternType=LITERAL, principal=User:alice, host=*, operation=READ, "
            "permissionType=ALLOW))",
        ),
        (
            AUDIT_LOGGER,
            logging.DEBUG,
            "Principal = User:admin is Allowed operation = READ from host = 10.0.0.1 on resource = "
            "Topic:LITERAL:orders for request = Fetch with resourceRefCount = 2 based on rule SuperUser",
        ),
        (
            AUDIT_LOGGER,
            TRACE,
            f"{start}Denied operation = READ from host = 10.0.0.1 on resource = TransactionalId:LITERAL:tx for request "
            "= Fetch with resourceRefCount = 1 based on rule DefaultDeny",
        ),
    ]


# ---- configuration


def test_without_a_class_there_is_no_authorizer() -> None:
    assert build_authorizer({}) is None
    assert build_authorizer({"authorizer.class.name": " "}) is None


def test_the_class_of_kafka_is_ours() -> None:
    assert isinstance(build_authorizer({"authorizer.class.name": STANDARD}), StandardAuthorizer)


class OwnAuthorizer(StandardAuthorizer):
    """An authorizer of a user."""


@pytest.mark.parametrize("separator", [".", ":"])
def test_a_class_of_a_user_is_imported(separator: str) -> None:
    assert isinstance(build_authorizer({"authorizer.class.name": f"{__name__}{separator}OwnAuthorizer"}), OwnAuthorizer)


def test_the_authorizer_of_the_security_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[5] / "docs" / "SECURITY.md").read_text(encoding="utf-8")
    code = page.partition("### An authorizer of your own")[2].partition("```python\n")[2].partition("```")[0]
    (tmp_path / "company_access.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    authorizer = build_authorizer({"authorizer.class.name": "company_access.Authorizer"})
    assert authorizer is not None
    authorizer.on_caught_up()
    assert authorizer.authorize(ALICE, READ._replace(resource_name="alice.notes"))
    assert not authorizer.authorize(ALICE, READ)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}, "is a class of Apache Kafka"),
        ({"authorizer.class.name": "Mine"}, "expected"),
        ({"authorizer.class.name": "no_such_module.Mine"}, "cannot be imported"),
        ({"authorizer.class.name": "barnabas.core.errors.Mine"}, "has no class Mine"),
        ({"authorizer.class.name": "builtins.dict"}, "lacks authorize"),
        ({"authorizer.class.name": STANDARD, "super.users": "alice"}, "not a principal"),
        ({"authorizer.class.name": STANDARD, "super.users": "User:a,User:b;c"}, "not a principal"),
        ({"authorizer.class.name": STANDARD, "allow.everyone.if.no.acl.found": "yes"}, "true or false"),
    ],
)
def test_wrong_configs_are_refused_with_the_reason(configs: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_authorizer(configs)


def test_decisions_and_acls_are_counted() -> None:
    metrics = Metrics()
    authorizer = build_authorizer({"authorizer.class.name": STANDARD, "super.users": "User:alice"}, metrics)
    assert authorizer is not None
    authorizer.on_caught_up()
    assert authorizer.authorize(ALICE, READ)
    for _ in range(2):
        assert not authorizer.authorize(ALICE._replace(principal=KafkaPrincipal("User", "eve")), READ)
    gauge = metrics.gauge
    assert gauge("barnabas_authorizer_decisions", result="allowed").value == 1
    assert gauge("barnabas_authorizer_decisions", result="denied").value == 2
    assert gauge("barnabas_authorizer_acls").value == 0
