"""Machine: DescribeGroups, ListGroups and DeleteGroups. Reads see what is committed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.delete_groups import DeletableGroupResult
from barnabas.protocol.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from barnabas.protocol.wire.messages.list_groups import ListedGroup
from barnabas.server.coordination.group import groups
from barnabas.server.coordination.group.classic.group import DEAD, STABLE, ClassicGroup
from barnabas.server.coordination.group.groups import GroupTable
from barnabas.server.coordination.group.offsets import Offsets
from barnabas.server.coordination.turn import Turn

NOT_FOUND_FROM: Final = 6
"""KIP-1043: DescribeGroups says GROUP_ID_NOT_FOUND; before, a group nobody knows was "Dead"."""


def describe(table: GroupTable, group_id: str, api_version: int) -> DescribedGroup:
    """One classic group; metadata and assignments only while it is stable, for before they mean nothing."""
    group = table.committed_get(group_id)
    if not isinstance(group, ClassicGroup):
        described = DescribedGroup(group_id=group_id, group_state=DEAD.value)
        if api_version >= NOT_FOUND_FROM:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            what = "not found" if group is None else "is not a classic group"
            described.error_message = f"Group {group_id} {what}."
        return described
    stable = group.state is STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=m.member_id,
                group_instance_id=m.instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                member_metadata=m.metadata(group.protocol_name) if stable else b"",
                member_assignment=m.assignment if stable else b"",
            )
            for m in group.members.values()
        ],
    )


def list_groups(table: GroupTable, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
    """Groups of these states and types (any, when empty); case does not matter."""
    wanted_states = {state.lower() for state in states}
    wanted_types = {kind.lower() for kind in types}
    listed = []
    for group in table.committed_groups():
        state, kind = groups.state_name(group), groups.type_of(group).value
        if (wanted_states and state.lower() not in wanted_states) or (
            wanted_types and kind.lower() not in wanted_types
        ):
            continue
        listed.append(
            ListedGroup(
                group_id=group.group_id, protocol_type=groups.protocol_type(group), group_state=state, group_type=kind
            )
        )
    return listed


def delete_groups(
    table: GroupTable, offsets: Offsets, turn: Turn, group_ids: Collection[str]
) -> list[DeletableGroupResult]:
    """Delete empty groups with their offsets; each has its own result."""
    results = []
    for group_id in group_ids:
        result = DeletableGroupResult(group_id=group_id)
        results.append(result)
        try:
            group = table.find(group_id)
            groups.check_delete(group)
        except KafkaError as error:
            result.error_code = error.code
            continue
        offsets.delete_all(turn, group_id)
        turn.write(*groups.tombstones(group))
    return results
