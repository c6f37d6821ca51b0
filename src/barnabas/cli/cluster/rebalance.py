"""Shell: `barnabas cluster rebalance`: plans the moves that balance a cluster, shows the plan, and carries it out."""

from __future__ import annotations

import json as jsonlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from barnabas.cli.cluster.moves_execution import as_plan, carry_out, elect_preferred
from barnabas.cli.cluster.rebalance_load import BrokerChoice, build_load, read_cluster
from barnabas.cli.cluster.rebalance_text import plan_document, print_plan, summary
from barnabas.cli.options import Bootstrap, CommandConfig, Json
from barnabas.cli.output import note, print_json
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin
from barnabas.protocol.assign.balance.planner import plan_balance
from barnabas.protocol.assign.balance.values import (
    HARD_GOALS,
    SOFT_GOALS,
    BalanceOptions,
    BalancePlan,
    ClusterLoad,
    Goal,
    PlannedRole,
)

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin

Throttle = Annotated[
    int | None,
    typer.Option("--throttle", metavar="BYTES", min=1, help="Maximum bytes per second into each broker."),
]
AtOnce = Annotated[
    int, typer.Option("--at-once", metavar="N", min=1, help="The number of replicas that a broker gets at a time.")
]
DiskPercent = Annotated[
    int, typer.Option("--disk-percent", min=1, max=100, help="How full the disks of a broker may become.")
]
ReplicasMax = Annotated[int, typer.Option("--max-replicas", min=1, help="How many replicas a broker may have.")]
Execute = Annotated[bool, typer.Option("--execute", help="Carry out the plan. Without it the plan is only shown.")]
Brokers = str | None

_NETWORK: Final = (Goal.NETWORK_IN, Goal.NETWORK_OUT)


def rebalance(
    goals: Annotated[
        str,
        typer.Option("--goals", metavar="GOAL,...", help="What is balanced, the most important first."),
    ] = ",".join(SOFT_GOALS),
    add_broker: Annotated[
        Brokers, typer.Option("--add-broker", metavar="ID,...", help="Only these brokers get replicas.")
    ] = None,
    remove_broker: Annotated[
        Brokers,
        typer.Option("--remove-broker", metavar="ID,...", help="These brokers, alive or dead, give all replicas away."),
    ] = None,
    exclude_brokers: Annotated[
        Brokers, typer.Option("--exclude-brokers", metavar="ID,...", help="These brokers keep what they have.")
    ] = None,
    exclude_topics: Annotated[
        str | None, typer.Option("--exclude-topics", metavar="REGEX", help="The replicas of these topics stay.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0.0, max=1.0, help="The share by which a broker may miss the average.")
    ] = 0.1,
    max_moves: Annotated[int | None, typer.Option("--max-moves", min=1, help="The most partitions to change.")] = None,
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", metavar="BYTES", min=0, help="The most bytes to copy.")
    ] = None,
    max_replicas: ReplicasMax = 10_000,
    disk_percent: DiskPercent = 80,
    sample: Annotated[
        float, typer.Option("--sample", metavar="SECONDS", min=0.0, help="For how long traffic is measured.")
    ] = 10.0,
    execute: Execute = False,
    throttle: Throttle = None,
    at_once: AtOnce = 5,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE", help="Write the moves in the JSON of kafka-reassign-partitions."),
    ] = None,
    json: Json = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Balance replicas, leaders, disk usage and traffic over the brokers, and replicas over the racks.

    The plan is shown: the moves, the bytes that they copy, and each broker before and after. With --execute it is
    carried out. Racks, the number of replicas (--max-replicas) and the disks (--disk-percent) come before all goals.
    The goals are replicas, disk, network-in, network-out and leaders; an earlier one is not made worse for a later one.

    Ctrl-C begins no more reassignments; those under way continue, and `barnabas cluster moves --cancel` cancels them.

    Example: `barnabas cluster rebalance --goals disk,leaders --throttle 50000000`
    """
    options = BalanceOptions(parse_goals(goals), tolerance, max_replicas, max_moves, max_bytes)
    choice = BrokerChoice(
        parse_brokers("--add-broker", add_broker),
        parse_brokers("--remove-broker", remove_broker),
        parse_brokers("--exclude-brokers", exclude_brokers),
        _checked_regex(exclude_topics),
        disk_percent,
    )

    async def command(admin: AsyncAdmin) -> tuple[ClusterLoad, BalancePlan]:
        sample_s = sample if any(goal in _NETWORK for goal in options.goals) else 0
        if sample_s:
            note(f"measuring the traffic for {sample_s:g} s")
        found = await read_cluster(admin, sample_s=sample_s)
        if found.placement.under_way:
            note(f"reassignments are under way: {len(found.placement.under_way)}. Their partitions stay as they are.")
        load = build_load(found, choice)
        if dead := [b for b in found.dead if load.brokers[b].role is PlannedRole.EXCLUDED and b not in choice.excluded]:
            note(f"broker {', '.join(map(str, dead))} is dead, and keeps its replicas; see `barnabas cluster heal`")
        plan = plan_balance(load, options)
        if not json:
            print_plan(plan, load)
        if save is not None:
            targets = {tp: move.after for tp, move in plan.moves.items()}
            save.write_text(jsonlib.dumps(as_plan(targets), indent=2) + "\n", encoding="utf-8")
        if execute and plan.moves:
            await execute_plan(admin, plan, throttle, at_once)
        return load, plan

    load, plan = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(plan_document(plan, load, is_executed=execute))
    elif execute or not plan.moves:
        note(f"{len(plan.moves)} moved" if plan.moves else "nothing to do")
    else:
        note(f"{summary(plan)}; --execute carries out the plan")


async def execute_plan(admin: AsyncAdmin, plan: BalancePlan, throttle: int | None, at_once: int) -> None:
    """Move the replicas, wait for them, and elect the preferred leaders of the partitions that have changed."""
    note(summary(plan))
    targets = {tp: move.after for tp, move in plan.moves.items()}
    originals = {tp: move.before for tp, move in plan.moves.items()}
    sizes = {tp: move.bytes for tp, move in plan.moves.items()}
    await carry_out(admin, originals, targets, throttle, at_once=at_once, sizes=sizes)
    await elect_preferred(admin, targets)


def parse_goals(text: str) -> tuple[Goal, ...]:
    """The soft goals in `text`. Raises typer.BadParameter."""
    known = {goal.value: goal for goal in SOFT_GOALS}
    names = [name.strip() for name in text.split(",") if name.strip()]
    hard = {goal.value for goal in HARD_GOALS}
    if unknown := [name for name in names if name not in known and name not in hard]:
        raise typer.BadParameter(f"{', '.join(unknown)}: the goals are {', '.join(known)}.")
    return tuple(dict.fromkeys(known[name] for name in names if name in known))


def parse_brokers(option: str, text: str | None) -> frozenset[int]:
    try:
        return frozenset(int(part) for part in (text or "").split(",") if part.strip())
    except ValueError:
        raise typer.BadParameter(f"{option} {text}: write the ids of brokers, such as 4 or 4,5.") from None


def _checked_regex(text: str | None) -> str | None:
    try:
        re.compile(text or "")
    except re.error as error:
        raise typer.BadParameter(f"--exclude-topics {text}: this is no regular expression ({error}).") from None
    return text
