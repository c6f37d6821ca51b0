"""Every API with every missing right (Kafka's AuthorizerIntegrationTest and ControllerApisTest), over the wire.

For each request of `requests.py`: with all rights no error of authorization; without one of them, and with one of them
denied, the error code of that right; without any, nothing but refusals.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.apis import ApiKey
from barnabas.server.broker.apis import API_ROWS, BROKER_APIS, CONTROLLER_APIS
from tests.unit.server.broker.authorization.cluster import REFUSED, Cluster, error_codes
from tests.unit.server.broker.authorization.requests import BROKER_CASES, CONTROLLER_CASES, SHARE_SESSION, Case, build

CASES = [*BROKER_CASES, *CONTROLLER_CASES]
KEEPING = [case for case in CASES if case.api != "DELETE_TOPICS"]
"""The cases that succeed without the loss of the topic; `test_authorization_entries.py` deletes topics."""
CODE_OF = {
    "T": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "G": ErrorCode.GROUP_AUTHORIZATION_FAILED,
    "C": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    "X": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_OPEN = {
    ApiKey.API_VERSIONS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
}
_TOKENS = {ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN}
"""APIs that serve authenticated clients only; `test_broker_delegation_tokens.py` has their rights."""
_FILTERED = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}
"""APIs that leave out what the client may not see, and so have no refusals; they have tests of their own."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


def _code(right: str) -> ErrorCode:
    """The code with which a right is refused."""
    named = right.partition("=")[2]
    return ErrorCode[f"{named}_AUTHORIZATION_FAILED"] if named else CODE_OF[right[0]]


def _refusals(cluster: Cluster, case: Case) -> set[ErrorCode]:
    if case.api == "SHARE_ACKNOWLEDGE":
        cluster.prepare(build(SHARE_SESSION, cluster.topic_id), SHARE_SESSION.version)
    response = cluster.send(build(case, cluster.topic_id), case.version, to_controller=case.controller)
    return error_codes(response) & REFUSED


def _granted(case: Case) -> list[str]:
    """The first alternative of each right."""
    return [right.partition("|")[0] for right in case.rights.split()]


MISSING = [
    pytest.param(case, right, id=f"{case.id}-without-{right}") for case in CASES for right in case.rights.split()
]
ALTERNATIVES = [
    pytest.param(case, choice, id=f"{case.id}-with-{choice}")
    for case in KEEPING
    for right in case.rights.split()
    if "|" in right
    for choice in right.partition("=")[0].split("|")
]


@pytest.mark.parametrize(("case", "right"), MISSING)
def test_a_missing_right_is_refused(cluster: Cluster, case: Case, right: str) -> None:
    cluster.allow(*(other for other in case.rights.replace("|", " ").split() if other not in right.split("|")))
    assert _refusals(cluster, case) == {_code(right)}


@pytest.mark.parametrize(("case", "right"), MISSING)
def test_a_denied_right_is_refused(cluster: Cluster, case: Case, right: str) -> None:
    cluster.allow(*case.rights.replace("|", " ").split(), deny=tuple(right.partition("=")[0].split("|")))
    assert _refusals(cluster, case) == {_code(right)}


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES])
def test_without_any_right_the_first_one_is_refused(cluster: Cluster, case: Case) -> None:
    cluster.allow()
    assert _refusals(cluster, case) == {_code(case.rights.split()[0])}


@pytest.mark.parametrize(("case", "choice"), ALTERNATIVES)
def test_one_of_several_alternatives_is_enough(cluster: Cluster, case: Case, choice: str) -> None:
    cluster.allow(choice)
    assert _refusals(cluster, case) == set()


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in KEEPING])
def test_with_all_rights_nothing_is_refused(cluster: Cluster, case: Case) -> None:
    cluster.allow(*_granted(case))
    assert _refusals(cluster, case) == set()


# ---- vulnerabilities that Apache Kafka had


@pytest.mark.parametrize("name", ["FETCH-v12-replica", "FETCH-v18-replica-state"])
def test_cve_2018_1288_a_consumer_cannot_fetch_as_a_replica(cluster: Cluster, name: str) -> None:
    (case,) = [case for case in CASES if case.id == name]
    cluster.allow("T:READ", "T:DESCRIBE", "T:WRITE", "G:READ")
    assert _refusals(cluster, case) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("name", ["PRODUCE-v11-txn", "PRODUCE-v11-second-batch-txn"])
def test_cve_2018_17196_a_transactional_batch_needs_the_transactional_id(cluster: Cluster, name: str) -> None:
    (case,) = [case for case in CASES if case.id == name]
    cluster.allow("T:WRITE")
    assert _refusals(cluster, case) == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


# ---- no API can be forgotten


def test_every_entry_protects_its_api_or_says_why_not() -> None:
    for key, served in [*BROKER_APIS.by_key.items(), *CONTROLLER_APIS.by_key.items()]:
        access, row = served.access, API_ROWS[ApiKey(key)]
        if access.is_forwarded:
            assert row.is_forwarded
            assert row.controller is not None
            assert row.controller.access.needs
        elif not access.needs:
            assert key in _OPEN
            assert access.reason
        else:
            assert access.guard or access.cluster_operation is not None


def test_the_matrix_has_a_case_for_every_api_that_needs_a_right() -> None:
    for cases, table in ((BROKER_CASES, BROKER_APIS), (CONTROLLER_CASES, CONTROLLER_APIS)):
        tested = {ApiKey[case.api] for case in cases}
        assert {ApiKey(key) for key in table.by_key} - tested <= _OPEN | _FILTERED | _TOKENS


def test_the_matrix_is_not_smaller_than_that_of_kafka() -> None:
    assert len(MISSING) * 2 + len(CASES) * 2 + len(ALTERNATIVES) >= 182
