"""Script commands of an administrator: describe, list, delete and explain groups."""

from __future__ import annotations

from barnabas.client.admin.maintenance import group_facts
from barnabas.client.explanations import group as why_group
from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages import (
    delete_groups,
    describe_groups,
    explain_group,
    list_groups,
)
from tests.golden.coordination.show import show_assignment
from tests.golden.coordination.stage import Stage
from tests.unit.server.coordination.kit import Context


async def describe(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    coordinator = await stage.start()
    request = describe_groups.DescribeGroupsRequest(groups=words or ["g"])

    def show(r: describe_groups.DescribeGroupsResponse) -> str:
        each = []
        for g in r.groups:
            code = f" {ErrorCode(g.error_code).name}" if g.error_code else ""
            members = " ".join(
                f"{m.member_id}({m.client_id}{m.client_host}"
                f"{' ' + m.group_instance_id if m.group_instance_id else ''}"
                f" {show_assignment(m.member_assignment)})"
                for m in g.members
            )
            each.append(f"{g.group_id} {g.group_state}{code} {g.protocol_type}/{g.protocol_data} [{members}]")
        return "; ".join(each)

    stage.call("admin", coordinator.describe_groups(Context(int(options.get("v", 6))), request), show)


async def list_all(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    coordinator = await stage.start()
    request = list_groups.ListGroupsRequest(
        states_filter=[s for s in options.get("states", "").split(",") if s],
        types_filter=[s for s in options.get("types", "").split(",") if s],
    )

    def show(r: list_groups.ListGroupsResponse) -> str:
        each = "; ".join(f"{g.group_id} {g.group_type} {g.group_state} {g.protocol_type}" for g in r.groups)
        return f"{ErrorCode(r.error_code).name} {each}"

    stage.call("admin", coordinator.list_groups(Context(5), request), show)


async def delete(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    coordinator = await stage.start()
    request = delete_groups.DeleteGroupsRequest(groups_names=words)

    def show(r: delete_groups.DeleteGroupsResponse) -> str:
        return " ".join(f"{g.group_id}:{ErrorCode(g.error_code).name}" for g in r.results)

    stage.call("admin", coordinator.delete_groups(Context(2), request), show)


async def why(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """The output of `barnabas groups why`."""
    coordinator = await stage.start()
    request = explain_group.ExplainGroupRequest(group_ids=[words[0] if words else "g"])

    def show(r: explain_group.ExplainGroupResponse) -> str:
        (group,) = r.groups
        if group.error_code:
            return ErrorCode(group.error_code).name
        found = why_group.answers(group_facts(group))
        return "".join(f"\n  {question}: {sentence}" for question, told in found.items() for sentence in told)

    stage.call("admin", coordinator.explain_group(Context(0), request), show)
