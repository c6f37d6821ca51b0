"""Delegation tokens in the metadata: the decisions of the controller (Kafka's DelegationTokenControlManager)."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.protocol.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.server.metadata.controller.delegation_tokens import (
    REMOVED_AT_ONCE,
    RENEWERS_MAX,
    TOKENS_MAX,
    TOKENS_OF_REQUESTER_MAX,
    decide_create_delegation_token,
    decide_expire_delegation_token,
    decide_remove_expired,
    decide_renew_delegation_token,
)
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.features import bootstrap_records
from barnabas.server.metadata.image.cluster import ClusterImage, DelegationTokenImage
from barnabas.server.metadata.image.delta import replayed
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.other import DelegationTokenRecord
from barnabas.server.node.typed_configs import CONTROLLER

ALICE, BOB, CAROL = (KafkaPrincipal("User", name) for name in ("alice", "bob", "carol"))
NOW, HOUR, DAY = 1_000_000, 3_600_000, 86_400_000
E = ErrorCode


class Cluster:
    """A controller's image, the time, and the decisions on them."""

    def __init__(self, *, secret: str | None = "key", level: int | None = None) -> None:
        self.now_ms = NOW
        levels = {} if level is None else {"levels": {"metadata.version": level}}
        self.image = replayed(ClusterImage(), list(bootstrap_records(**levels)))
        settings = CONTROLLER.from_defaults(node_id=1, static_config={}, delegation_token_secret_key=secret)
        self._settings = settings
        self._rng = Random(1)

    @property
    def ctx(self) -> DecideContext:
        return DecideContext(now_ms=self.now_ms, rng=self._rng, settings=self._settings)

    def create(
        self, requester: KafkaPrincipal = ALICE, *renewers: str, owner: KafkaPrincipal | None = None, life_ms: int = -1
    ) -> CreateDelegationTokenResponse:
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else owner.kind,
            owner_principal_name=None if owner is None else owner.name,
            renewers=[
                CreatableRenewers(principal_type=text.partition(":")[0], principal_name=text.partition(":")[2])
                for text in renewers
            ],
            max_lifetime_ms=life_ms,
        )
        decision = decide_create_delegation_token(self.image, request, self.ctx, requester)
        assert bool(decision.records) is (decision.response.error_code == 0)
        self.image = replayed(self.image, decision.records)
        return decision.response

    def renew(self, token_id: str | None, requester: KafkaPrincipal = ALICE, period_ms: int = -1) -> tuple[int, int]:
        request = RenewDelegationTokenRequest(hmac=b"?", renew_period_ms=period_ms)
        decision = decide_renew_delegation_token(self.image, request, self.ctx, requester, token_id)
        self.image = replayed(self.image, decision.records)
        return decision.response.error_code, decision.response.expiry_timestamp_ms

    def expire(self, token_id: str | None, requester: KafkaPrincipal = ALICE, period_ms: int = -1) -> tuple[int, int]:
        request = ExpireDelegationTokenRequest(hmac=b"?", expiry_time_period_ms=period_ms)
        decision = decide_expire_delegation_token(self.image, request, self.ctx, requester, token_id)
        self.image = replayed(self.image, decision.records)
        return decision.response.error_code, decision.response.expiry_timestamp_ms

    def remove_expired(self) -> list[str]:
        decision = decide_remove_expired(self.image, self.ctx)
        self.image = replayed(self.image, decision.records)
        return decision.response

    def token(self, token_id: str) -> DelegationTokenImage:
        found = self.image.tokens.by_id[token_id]
        assert isinstance(found, DelegationTokenImage)
        return found


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_token_has_its_owner_its_renewers_and_the_default_times(cluster: Cluster) -> None:
    made = cluster.create(ALICE, "User:bob", "User:carol")
    assert (made.error_code, made.hmac, len(made.token_id)) == (0, b"", 22)
    assert (made.principal_type, made.principal_name) == ("User", "alice")
    assert (made.token_requester_principal_type, made.token_requester_principal_name) == ("User", "alice")
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms) == (NOW, NOW + DAY, NOW + 7 * DAY)
    assert cluster.token(made.token_id) == DelegationTokenImage(
        made.token_id, "User:alice", "User:alice", ("User:bob", "User:carol"), NOW, NOW + 7 * DAY, NOW + DAY, 38
    )


def test_a_token_for_another_owner_names_the_client_that_requested_it(cluster: Cluster) -> None:
    made = cluster.create(ALICE, owner=BOB)
    assert (made.principal_name, made.token_requester_principal_name) == ("bob", "alice")
    token = cluster.token(made.token_id)
    assert (token.owner, token.requester) == ("User:bob", "User:alice")


@pytest.mark.parametrize(
    ("life_ms", "expiry_ms", "max_ms"),
    [
        (-1, DAY, 7 * DAY),
        (0, DAY, 7 * DAY),
        (HOUR, HOUR, HOUR),
        (2 * DAY, DAY, 2 * DAY),
        (30 * DAY, DAY, 7 * DAY),
        (2**63 - 1, DAY, 7 * DAY),
    ],
)
def test_the_lifetime_is_bounded(cluster: Cluster, life_ms: int, expiry_ms: int, max_ms: int) -> None:
    made = cluster.create(life_ms=life_ms)
    assert (made.expiry_timestamp_ms - NOW, made.max_timestamp_ms - NOW) == (expiry_ms, max_ms)


@pytest.mark.parametrize(
    ("renewers", "owner", "code"),
    [
        (["Group:x"], None, E.INVALID_PRINCIPAL_TYPE),
        (["User:x", "user:y"], None, E.INVALID_PRINCIPAL_TYPE),
        ([], KafkaPrincipal("Group", "x"), E.INVALID_PRINCIPAL_TYPE),
        ([f"User:{n}" for n in range(RENEWERS_MAX + 1)], None, E.INVALID_REQUEST),
        ([f"User:{n}" for n in range(RENEWERS_MAX)], None, E.NONE),
        ([f"User:{n:060}" for n in range(RENEWERS_MAX)], None, E.NONE),
        ([f"User:{n:070}" for n in range(RENEWERS_MAX)], None, E.INVALID_REQUEST),
    ],
)
def test_owners_and_renewers_are_users(
    cluster: Cluster, renewers: list[str], owner: KafkaPrincipal | None, code: ErrorCode
) -> None:
    assert cluster.create(ALICE, *renewers, owner=owner).error_code == code


def test_the_tokens_of_a_requester_have_a_total(cluster: Cluster) -> None:
    renewers = [f"User:{n:060}" for n in range(RENEWERS_MAX)]
    codes = [cluster.create(ALICE, *renewers).error_code for _ in range(20)]
    assert codes == [E.NONE] * 16 + [E.POLICY_VIOLATION] * 4
    assert cluster.create(BOB, *renewers).error_code == E.NONE
    cluster.now_ms += DAY + 1
    cluster.remove_expired()
    assert cluster.create(ALICE, *renewers).error_code == E.NONE


@pytest.mark.parametrize(("of_alice", "others"), [(TOKENS_OF_REQUESTER_MAX, 0), (0, TOKENS_MAX)])
def test_tokens_have_a_total_for_each_requester_and_for_the_cluster(
    cluster: Cluster, of_alice: int, others: int
) -> None:
    def records(name: str, count: int) -> list[MetadataRecord]:
        return [
            DelegationTokenRecord(owner=name, requester=name, token_id=f"{name}-{number}", expiration_timestamp=1 << 60)
            for number in range(count)
        ]

    cluster.image = replayed(cluster.image, records("User:alice", of_alice) + records("User:carol", others))
    assert cluster.create(ALICE).error_code == E.POLICY_VIOLATION
    assert cluster.create(BOB).error_code == (E.POLICY_VIOLATION if others else E.NONE)


def test_renewing_never_exceeds_the_lifetime(cluster: Cluster) -> None:
    token_id = cluster.create(ALICE, "User:bob", life_ms=3 * DAY).token_id
    cluster.now_ms += HOUR
    assert cluster.renew(token_id) == (0, NOW + HOUR + DAY)
    assert cluster.renew(token_id, BOB, HOUR) == (0, NOW + 2 * HOUR)
    assert cluster.token(token_id).expiration_timestamp == NOW + 2 * HOUR
    cluster.now_ms = NOW + 2 * HOUR
    assert cluster.renew(token_id, BOB, 30 * DAY) == (0, NOW + 2 * HOUR + DAY)
    cluster.now_ms = NOW + DAY
    assert cluster.renew(token_id) == (0, NOW + 2 * DAY)
    cluster.now_ms = NOW + 2 * DAY
    assert cluster.renew(token_id) == (0, NOW + 3 * DAY)
    cluster.now_ms = NOW + 2 * DAY + HOUR
    assert cluster.renew(token_id) == (0, NOW + 3 * DAY)


def test_an_expired_token_cannot_be_renewed(cluster: Cluster) -> None:
    token_id = cluster.create().token_id
    cluster.now_ms = NOW + DAY
    assert cluster.renew(token_id)[0] == E.NONE
    cluster.now_ms = NOW + 2 * DAY + 1
    assert cluster.renew(token_id)[0] == E.DELEGATION_TOKEN_EXPIRED


def test_only_owners_and_renewers_change_a_token(cluster: Cluster) -> None:
    """The client that requested the token of another owner is none of the two."""
    token_id = cluster.create(ALICE, "User:carol", owner=BOB).token_id
    for call in (cluster.renew, cluster.expire):
        assert call(token_id, ALICE, HOUR) == (E.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
        assert call(token_id, KafkaPrincipal("Group", "bob"), HOUR) == (E.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
        assert call(token_id, BOB, HOUR)[0] == E.NONE
        assert call(token_id, CAROL, HOUR)[0] == E.NONE
    assert cluster.expire(token_id, ALICE) == (E.DELEGATION_TOKEN_OWNER_MISMATCH, 0)


@pytest.mark.parametrize("token_id", [None, "unknown"])
def test_a_token_that_does_not_exist_is_not_found(cluster: Cluster, token_id: str | None) -> None:
    assert cluster.renew(token_id) == (E.DELEGATION_TOKEN_NOT_FOUND, 0)
    assert cluster.expire(token_id) == (E.DELEGATION_TOKEN_NOT_FOUND, 0)


def test_a_negative_period_removes_the_token(cluster: Cluster) -> None:
    token_id = cluster.create().token_id
    assert cluster.expire(token_id) == (0, NOW)
    assert not cluster.image.tokens.by_id
    assert cluster.renew(token_id)[0] == E.DELEGATION_TOKEN_NOT_FOUND


def test_a_period_moves_the_expiry(cluster: Cluster) -> None:
    token_id = cluster.create(life_ms=3 * DAY).token_id
    assert cluster.expire(token_id, period_ms=HOUR) == (0, NOW + HOUR)
    assert cluster.expire(token_id, period_ms=2 * DAY) == (0, NOW + 2 * DAY)
    assert cluster.expire(token_id, period_ms=2**63 - 1) == (0, NOW + 3 * DAY)
    assert cluster.expire(token_id, period_ms=0) == (0, NOW)


def test_an_expired_token_can_only_be_removed(cluster: Cluster) -> None:
    token_id = cluster.create(life_ms=HOUR).token_id
    cluster.now_ms += HOUR + 1
    assert cluster.expire(token_id, period_ms=HOUR) == (E.DELEGATION_TOKEN_EXPIRED, 0)
    assert cluster.expire(token_id) == (0, cluster.now_ms)


def test_expired_tokens_are_removed(cluster: Cluster) -> None:
    short, long = cluster.create(life_ms=HOUR).token_id, cluster.create().token_id
    assert cluster.remove_expired() == []
    cluster.now_ms += HOUR + 1
    assert cluster.remove_expired() == [short]
    assert list(cluster.image.tokens.by_id) == [long]
    cluster.now_ms += DAY
    assert cluster.remove_expired() == [long]


def test_one_decision_removes_a_limited_number_of_tokens(cluster: Cluster) -> None:
    records = [
        DelegationTokenRecord(owner="User:a", requester="User:a", token_id=str(number), expiration_timestamp=1)
        for number in range(REMOVED_AT_ONCE + 1)
    ]
    cluster.image = replayed(cluster.image, records)
    assert [len(cluster.remove_expired()) for _ in range(3)] == [REMOVED_AT_ONCE, 1, 0]


@pytest.mark.parametrize(
    ("secret", "level", "code"),
    [
        (None, None, E.DELEGATION_TOKEN_AUTH_DISABLED),
        ("", None, E.DELEGATION_TOKEN_AUTH_DISABLED),
        (None, 13, E.DELEGATION_TOKEN_AUTH_DISABLED),
        ("key", 13, E.UNSUPPORTED_VERSION),
        ("key", 14, E.NONE),
    ],
)
def test_tokens_need_a_secret_key_and_metadata_version_3_6(secret: str | None, level: int | None, code: int) -> None:
    cluster = Cluster(secret=secret, level=level)
    made = cluster.create()
    assert made.error_code == code
    if code:
        assert (made.principal_name, made.token_id) == ("alice", "")
        assert cluster.renew("x")[0] == code
        assert cluster.expire("x")[0] == code
