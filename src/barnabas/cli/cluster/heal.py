"""Shell: `barnabas cluster heal`: places the replicas of dead brokers on living ones, once or for ever."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from barnabas.cli.cluster.rebalance import AtOnce, DiskPercent, Execute, ReplicasMax, Throttle, execute_plan
from barnabas.cli.cluster.rebalance_load import BrokerChoice, ReadCluster, build_load, read_cluster
from barnabas.cli.cluster.rebalance_text import plan_document, print_plan, summary, unplaced_text
from barnabas.cli.options import Bootstrap, CommandConfig, Json
from barnabas.cli.output import EXIT_FAILED, EXIT_USAGE, fail, note, print_json
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin
from barnabas.protocol.assign.balance.healing import Healer, HealingPolicy, HealingVerdict
from barnabas.protocol.assign.balance.planner import plan_balance
from barnabas.protocol.assign.balance.values import BalanceOptions, BalancePlan, ClusterLoad

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin

_INTERVAL_S: Final = 5.0
"""The time between two observations of the cluster."""


def heal(
    after: Annotated[
        str, typer.Option("--after", metavar="DURATION", help="For how long a broker must have been dead.")
    ] = "PT30M",
    max_dead: Annotated[
        int, typer.Option("--max-dead", min=1, help="Do nothing while more brokers than this are dead.")
    ] = 1,
    watch: Annotated[bool, typer.Option("--watch", help="Go on for ever, also when nothing is dead.")] = False,
    execute: Execute = False,
    throttle: Throttle = None,
    at_once: AtOnce = 5,
    max_replicas: ReplicasMax = 10_000,
    disk_percent: DiskPercent = 80,
    json: Json = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Place the replicas of dead brokers on living ones, so that every partition has all its replicas again.

    Without --execute the plan is shown, and nothing is changed. With --execute the command waits until the broker has
    been dead for --after, as seen by this command, and moves the replicas. It does nothing while more than --max-dead
    brokers are dead, or while other reassignments are under way. A broker that comes back in time keeps its replicas.
    With --watch the command never ends: run it as a service beside the cluster.

    Example: `barnabas cluster heal --watch --execute --after PT1H --throttle 50000000`
    """
    from barnabas.client.admin.offset_resets import parse_duration_ms

    if json and watch:
        fail("--watch does not end, and so has no JSON document: leave --json out", EXIT_USAGE)
    try:
        policy = HealingPolicy(parse_duration_ms(after), max_dead)
    except ValueError as error:
        fail(f"--after: {error}", EXIT_USAGE)
    limits = _Limits(max_replicas, disk_percent)

    async def command(admin: AsyncAdmin) -> dict[str, Any]:
        healing = _Healing(admin, Healer(policy), limits, throttle, at_once)
        if not execute and not watch:
            return await healing.show(as_json=json)
        return await healing.run(execute=execute, watch=watch)

    document = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(document)
    if document["unplaced"]:
        raise typer.Exit(EXIT_FAILED)


@dataclass(frozen=True, slots=True)
class _Limits:
    replicas_max: int
    disk_percent: int


class _Healing:
    """Observes the cluster, and carries out what the healer decides."""

    def __init__(self, admin: AsyncAdmin, healer: Healer, limits: _Limits, throttle: int | None, at_once: int) -> None:
        self._admin = admin
        self._healer = healer
        self._limits = limits
        self._throttle = throttle
        self._at_once = at_once
        self._said: object = None

    async def show(self, *, as_json: bool) -> dict[str, Any]:
        """Print what would be done for the brokers that are dead now."""
        found = await read_cluster(self._admin)
        verdict = self._observe(found)
        load, plan = self._plan(found, found.dead)
        if not as_json:
            if found.dead:
                print_plan(plan, load)
                note(f"{summary(plan)}; --execute carries out the plan")
            note(verdict.reason)
        return _document(verdict, load, plan, is_executed=False)

    async def run(self, *, execute: bool, watch: bool) -> dict[str, Any]:
        """Heal what is dead, and return when nothing is, unless the user watches."""
        from barnabas.core.errors import BarnabasError

        while True:
            try:
                found = await read_cluster(self._admin)
                verdict = self._observe(found)
                if verdict.is_unsafe and not watch:
                    fail(verdict.reason)
                self._say(verdict, found)
                load, plan = self._plan(found, verdict.heal)
                if execute and plan.moves:
                    await execute_plan(self._admin, plan, self._throttle, self._at_once)
                    note(f"healed: {len(plan.moves)} partitions have their replicas on living brokers")
                is_stuck = bool(verdict.heal) and not plan.moves
                if not watch and (not found.dead or is_stuck or (verdict.heal and not plan.unplaced)):
                    return _document(verdict, load, plan, is_executed=execute)
                self._say_plan(verdict, plan, execute=execute)
            except BarnabasError as error:
                if not watch:
                    raise
                self._healer.on_unobserved()
                note(f"the cluster cannot be observed: {error}")
            await asyncio.sleep(_INTERVAL_S)

    def _observe(self, found: ReadCluster) -> HealingVerdict:
        now_ms = round(asyncio.get_running_loop().time() * 1000)
        return self._healer.observe(now_ms, found.dead, moves_under_way=len(found.placement.under_way))

    def _plan(self, found: ReadCluster, heal: tuple[int, ...]) -> tuple[ClusterLoad, BalancePlan]:
        """The plan that places the replicas of the brokers `heal`, and moves nothing else."""
        choice = BrokerChoice(removed=frozenset(heal), disk_percent=self._limits.disk_percent)
        load = build_load(found, choice)
        options = BalanceOptions((), replicas_max=self._limits.replicas_max)
        return load, plan_balance(load if heal else ClusterLoad(load.brokers, {}), options)

    def _say(self, verdict: HealingVerdict, found: ReadCluster) -> None:
        """Print the reason for which nothing is done, once."""
        subject = (tuple(verdict.since_ms), bool(found.placement.under_way), bool(verdict.heal))
        if verdict.reason and subject != self._said:
            note(verdict.reason)
            self._said = subject

    def _say_plan(self, verdict: HealingVerdict, plan: BalancePlan, *, execute: bool) -> None:
        """Print, once, what a plan leaves undone."""
        subject = (verdict.heal, plan.unplaced)
        if not verdict.heal or subject == self._said:
            return
        self._said = subject
        if plan.unplaced:
            note(f"{unplaced_text(plan)}. Start another broker, or the dead one.")
        if not execute and plan.moves:
            note(f"would heal now: {summary(plan)}; --execute carries out the plan")


def _document(verdict: HealingVerdict, load: ClusterLoad, plan: BalancePlan, *, is_executed: bool) -> dict[str, Any]:
    return {
        "dead": list(verdict.since_ms),
        "reason": verdict.reason or None,
        **plan_document(plan, load, is_executed=is_executed and bool(plan.moves)),
    }
