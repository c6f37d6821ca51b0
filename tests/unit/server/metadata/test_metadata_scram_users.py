"""AlterUserScramCredentials: the rows of Kafka's ScramControlManager."""

from __future__ import annotations

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.protocol.security import scram
from barnabas.protocol.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.server.metadata.controller.controller import Controller
from barnabas.server.metadata.controller.users import decide_alter_user_scram_credentials
from barnabas.server.metadata.features import bootstrap_records
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import replayed

_SALT, _SALTED = b"salt-of-16-bytes", b"s" * 32


def _set(name: str, mechanism: int = 1, iterations: int = 4096, salt: bytes = _SALT) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=_SALTED
    )


def _decide(
    image: ClusterImage, *changes: ScramCredentialUpsertion | ScramCredentialDeletion
) -> tuple[dict[str, int], ClusterImage]:
    request = AlterUserScramCredentialsRequest(
        deletions=[change for change in changes if isinstance(change, ScramCredentialDeletion)],
        upsertions=[change for change in changes if isinstance(change, ScramCredentialUpsertion)],
    )
    decision = decide_alter_user_scram_credentials(image, request, None)  # type: ignore[arg-type]  # not used
    results = {result.user: result.error_code for result in decision.response.results}
    assert len(results) == len(decision.response.results), "one result for each user"
    return results, replayed(image, list(decision.records))


@pytest.fixture
def image() -> ClusterImage:
    return replayed(ClusterImage(), list(bootstrap_records()))


def test_the_request_is_one_of_the_controller() -> None:
    assert AlterUserScramCredentialsRequest in Controller.HANDLED


def test_a_credential_is_derived_from_the_salted_password(image: ClusterImage) -> None:
    results, after = _decide(image, _set("alice"), _set("alice", 2, 8192))
    assert results == {"alice": 0}
    assert after.scram.get(1, "alice") == scram.credential_of("sha256", _SALTED, _SALT, 4096)
    assert after.scram.get(2, "alice") == scram.credential_of("sha512", _SALTED, _SALT, 8192)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_set(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (_set("bad", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (_set("bad", iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (_set("bad", salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (_set("bad", mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramCredentialDeletion(name="bad", mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramCredentialDeletion(name="bad", mechanism=1), ErrorCode.RESOURCE_NOT_FOUND),
        (ScramCredentialDeletion(name="", mechanism=1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_an_invalid_change_does_not_prevent_those_of_other_users(
    image: ClusterImage, change: ScramCredentialUpsertion | ScramCredentialDeletion, code: ErrorCode
) -> None:
    results, after = _decide(image, change, _set("good"))
    assert results == {change.name: code, "good": 0}
    assert [user for _, user in after.scram.credentials] == ["good"]


def test_a_user_with_one_invalid_change_keeps_all_credentials(image: ClusterImage) -> None:
    results, after = _decide(image, _set("alice"), _set("alice", 2, 1))
    assert results == {"alice": ErrorCode.UNACCEPTABLE_CREDENTIAL}
    assert not after.scram.credentials


def test_a_credential_cannot_be_changed_twice_in_one_request(image: ClusterImage) -> None:
    _, image = _decide(image, _set("alice"))
    results, after = _decide(image, ScramCredentialDeletion(name="alice", mechanism=1), _set("alice", iterations=5000))
    assert results == {"alice": ErrorCode.DUPLICATE_RESOURCE}
    assert after.scram == image.scram


def test_a_credential_is_removed(image: ClusterImage) -> None:
    _, image = _decide(image, _set("alice"), _set("alice", 2))
    results, after = _decide(image, ScramCredentialDeletion(name="alice", mechanism=1))
    assert results == {"alice": 0}
    assert [mechanism for mechanism, _ in after.scram.credentials] == [2]


def test_a_metadata_version_without_scram_refuses() -> None:
    image = replayed(ClusterImage(), list(bootstrap_records({"metadata.version": 10})))
    assert _decide(image, _set("alice"))[0] == {"alice": ErrorCode.UNSUPPORTED_VERSION}
