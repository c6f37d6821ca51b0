"""CreateAcls and DeleteAcls with many ACLs are decided in parts; their answers are those of one decision."""

from __future__ import annotations

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.work import STEP_UNITS
from barnabas.protocol.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from barnabas.server.metadata.controller.acls import CHANGES_MAX, check_number, selecting
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.large_requests import ACLS_PER_DECISION
from barnabas.server.metadata.records.other import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from tests.unit.server.metadata.controller_house import House, play

MANY = 2 * ACLS_PER_DECISION + 7


def creation(name: str) -> AclCreation:
    return AclCreation(
        resource_type=2,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )


def only(name: str) -> DeleteAclsFilter:
    """A filter that can select one ACL."""
    return DeleteAclsFilter(
        resource_type_filter=2,
        resource_name_filter=name,
        pattern_type_filter=3,
        principal_filter="User:a",
        host_filter="*",
        operation=3,
        permission_type=3,
    )


ALL = DeleteAclsFilter(
    resource_type_filter=1,
    resource_name_filter=None,
    pattern_type_filter=1,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)


async def create(house: House, names: list[str]) -> list[int]:
    response = await house.service.call(CreateAclsRequest(creations=[creation(name) for name in names]), 3)
    assert isinstance(response, CreateAclsResponse)
    return [result.error_code for result in response.results]


async def delete(house: House, *filters: DeleteAclsFilter) -> list[list[str]]:
    """The names of the ACLs that each filter has deleted."""
    response = await house.service.call(DeleteAclsRequest(filters=list(filters)), 3)
    assert isinstance(response, DeleteAclsResponse)
    return [sorted(acl.resource_name for acl in result.matching_acls) for result in response.filter_results]


def records_by_batch(house: House, kind: type) -> list[int]:
    counts = [sum(isinstance(record, kind) for record in batch) for batch in house.log.batches]
    return [count for count in counts if count]


def test_many_acls_are_created_and_deleted_in_parts() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        names = [f"t{i}" for i in range(MANY)]
        assert await create(house, [*names, ""]) == [0] * MANY + [ErrorCode.INVALID_REQUEST]
        assert records_by_batch(house, AccessControlEntryRecord) == [ACLS_PER_DECISION, ACLS_PER_DECISION, 7]
        assert len(house.image.acls.by_id) == MANY
        assert await create(house, names) == [0] * MANY, "an ACL that exists is a success"
        assert await delete(house, only("t5"), ALL, only("t5"), only("none")) == [["t5"], sorted(names), ["t5"], []]
        assert records_by_batch(house, RemoveAccessControlEntryRecord) == [ACLS_PER_DECISION, ACLS_PER_DECISION, 7]
        assert (len(house.image.acls.by_id), len(house.image.acls.ids)) == (0, 0)

    play(scenario)


def test_too_many_acls_are_refused_before_any_is_created() -> None:
    async def scenario(house: House) -> None:
        house.log.elect(1)
        with pytest.raises(KafkaError, match="at most 10000 ACLs") as refusal:
            await create(house, [f"t{i}" for i in range(CHANGES_MAX + 1)])
        assert refusal.value.code == ErrorCode.POLICY_VIOLATION
        assert len(house.image.acls.by_id) == 0
        repeated = ["t", "u"] * (CHANGES_MAX // 2 + 1)
        assert await create(house, repeated) == [0] * len(repeated)
        assert len(house.image.acls.by_id) == 2

    play(scenario)


def test_the_steps_of_large_requests_are_short() -> None:
    creations = [creation(f"t{i}") for i in range(CHANGES_MAX)]
    assert max(check_number(ClusterImage(), creations)) <= STEP_UNITS
    assert list(selecting(ClusterImage(), [ALL, only("t")])) == []
