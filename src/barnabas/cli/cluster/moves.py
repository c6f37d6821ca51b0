"""Shell: the verbs `reassign`, `drain`, `moves` and `elect` of `barnabas cluster`: replica placement,
reassignments, and leader elections.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.cluster.moves_execution import Moves, as_plan, carry_out, elect_preferred, raise_first
from barnabas.cli.cluster.moves_placement import ClusterPlacement, read_moving_placement
from barnabas.cli.cluster.moves_throttle import clear_throttle, read_throttled_topics
from barnabas.cli.options import Bootstrap, CommandConfig, DryRun, Json
from barnabas.cli.output import EXIT_FAILED, EXIT_USAGE, fail, note, print_json, print_table
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin
from barnabas.client.explanations.words import counted
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.moves import MoveError, plan_moves

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.core.errors import KafkaError

Topics = Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only these topics; may be repeated.")]
Throttle = Annotated[
    int | None, typer.Option("--throttle", metavar="BYTES", help="Maximum bytes per second into each broker.")
]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until all replicas have moved.")]


def reassign(
    to: Annotated[str | None, typer.Option("--to", metavar="ID,ID,...", help="The brokers for the replicas.")] = None,
    topic: Topics = None,
    replication_factor: Annotated[int | None, typer.Option("--replication-factor", min=1)] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Carry out a plan in the JSON of kafka-reassign-partitions.")
    ] = None,
    throttle: Throttle = None,
    wait: Wait = True,
    dry_run: DryRun = False,
    json: Json = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Spread replicas evenly over brokers, change the replication factor, or carry out a plan.

    Without --to, replicas are spread over all brokers, so that a new broker receives its share. Replicas that are well
    placed stay. Reassignments that are already under way count as finished in the new plan; they continue, with the new
    --throttle if one is given.

    Example: `barnabas cluster reassign --topic orders --replication-factor 3 --dry-run`
    """

    def plan(placement: ClusterPlacement) -> Moves:
        if file is not None:
            return _read_plan(file, placement)
        chosen = _brokers(to, placement.racks)
        only = [tp for tp in placement.replicas if topic is None or tp.topic in topic]
        if topic is not None and (missing := sorted(set(topic) - {tp.topic for tp in only})):
            raise ValueError(f"Unknown topic: {', '.join(missing)}.")
        planned = plan_moves(placement.targets, chosen, only=only, replication_factor=replication_factor, balance=True)
        return _with_moves_under_way(planned, placement, only)

    _carry_out(bootstrap_server, command_config, plan, throttle=throttle, wait=wait, dry_run=dry_run, json=json)


def drain(
    brokers: Annotated[list[int], typer.Argument(metavar="BROKER...", help="The node ids of the brokers to drain.")],
    leaders_only: Annotated[
        bool,
        typer.Option("--leaders-only", help="Move only leaderships: the replicas stay, and become last."),
    ] = False,
    throttle: Throttle = None,
    wait: Wait = True,
    dry_run: DryRun = False,
    json: Json = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Move all replicas off brokers, so that the brokers can be removed.

    Name all brokers that are to be removed in one command: no replica moves to one of them. The other brokers need room
    for the replicas: topics with three replicas need three other brokers. With --leaders-only no replica moves; the
    other replicas become the preferred leaders, and are elected. (A broker that is only stopped for a while need not be
    drained: a clean stop hands its leaderships over.)

    Reassignments that are under way continue after Ctrl-C or with --no-wait. The same command, given again, waits for
    the rest.

    Example: `barnabas cluster drain 3 --throttle 50000000`
    """

    drained = frozenset(brokers)

    def plan(placement: ClusterPlacement) -> Moves:
        left = {other: rack for other, rack in placement.racks.items() if other not in drained}
        targets = placement.targets
        affected = [tp for tp, replicas in targets.items() if not drained.isdisjoint(replicas)]
        if leaders_only:
            return {
                tp: last
                for tp in affected
                if tp not in placement.under_way and (last := _with_last(targets[tp], drained)) != targets[tp]
            }
        too_many = [tp for tp in affected if len(targets[tp]) > len(left)]
        if too_many:
            raise MoveError(_describe_lack_of_brokers(brokers, too_many, targets, len(left)))
        planned = plan_moves(targets, left, only=affected)
        held = [tp for tp, replicas in placement.replicas.items() if not drained.isdisjoint(replicas)]
        return _with_moves_under_way(planned, placement, held)

    _carry_out(
        bootstrap_server, command_config, plan, throttle=throttle, wait=wait, dry_run=dry_run, json=json,
        afterwards=elect_preferred if leaders_only else None,
    )  # fmt: skip


def _with_last(replicas: Sequence[int], drained: Container[int]) -> tuple[int, ...]:
    """The replicas with those on drained brokers last."""
    return tuple(sorted(replicas, key=lambda broker: broker in drained))


def _describe_lack_of_brokers(
    brokers: Sequence[int],
    partitions: Sequence[TopicPartition],
    targets: Mapping[TopicPartition, Sequence[int]],
    left: int,
) -> str:
    first, named = partitions[0], " ".join(map(str, brokers))
    subject = f"Brokers {', '.join(map(str, brokers))}" if len(brokers) > 1 else f"Broker {named}"
    rest = f" (as do {len(partitions) - 1} other partitions)" if len(partitions) > 1 else ""
    return (
        f"{subject} cannot be drained: {first} has {len(targets[first])} replicas{rest}, and "
        f"only {left} other brokers run. Start another broker first; or keep fewer replicas: `barnabas cluster "
        f"reassign --replication-factor {left}`; or move only the leaderships: `barnabas cluster drain {named} "
        "--leaders-only`."
    )


def moves(
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel them: the replicas stay on their brokers.")] = False,
    preserve_throttles: Annotated[
        bool, typer.Option("--preserve-throttles", help="Keep the throttles of finished reassignments.")
    ] = False,
    json: Json = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Show the partition reassignments that are under way, or cancel them.

    If none is under way, a replication throttle that is still set is removed from topics and brokers.

    Example: `barnabas cluster moves`
    """

    async def command(admin: AsyncAdmin) -> list[dict[str, Any]]:
        under_way = await admin.list_partition_reassignments()
        results: Mapping[TopicPartition, KafkaError | None] = {}
        if cancel and under_way:
            results = await admin.alter_partition_reassignments(dict.fromkeys(under_way))
        if (cancel or not under_way) and not preserve_throttles:
            await _remove_throttles(admin, {broker for move in under_way.values() for broker in move.replicas}, cancel)
        over = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        raise_first({tp: error for tp, error in results.items() if error is not None and error.code is not over})
        return [
            {"partition": str(tp), "replicas": m.replicas, "adding": m.adding, "removing": m.removing}
            for tp, m in sorted(under_way.items())
        ]

    found = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(found)
        return
    note(f"{counted(len(found), 'move')} {'cancelled' if cancel else 'under way'}")
    rows = [(m["partition"], m["replicas"], m["adding"], m["removing"]) for m in found]
    print_table(["PARTITION", "REPLICAS", "ADDING", "REMOVING"], rows, empty="no moves")


async def _remove_throttles(admin: AsyncAdmin, moved: Iterable[int], always: bool) -> None:
    """Remove the throttle that finished reassignments left on topics and on brokers.

    `moved` are the ids of further brokers to clear, besides the running ones. If no topic has throttled replicas, the
    rates on brokers have no effect, and are removed only with `always`.
    """
    topics = await read_throttled_topics(admin)
    if topics or always:
        cleared = await clear_throttle(admin, topics, moved)
        if topics:
            note(f"throttle removed from {', '.join(cleared.topics)}; brokers {', '.join(map(str, cleared.brokers))}")


def elect(
    topic: Topics = None,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Elect any live replica (may lose records); only without a leader.")
    ] = False,
    json: Json = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Elect the preferred replicas as leaders, or (unclean) elect any replica for partitions without a leader.

    Example: `barnabas cluster elect --topic orders`
    """

    async def command(admin: AsyncAdmin) -> list[dict[str, Any]]:
        from barnabas.client.admin.elections import ElectionType

        partitions = None
        if topic is not None:
            views = await admin.describe_topics(topic)
            partitions = [TopicPartition(n, p) for n, v in views.items() for p in range(_count(v))]
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        results = await admin.elect_leaders(partitions, kind)
        return [
            {"partition": str(tp), "result": "elected" if error is None else error.code.name, "why": str(error or "")}
            for tp, error in sorted(results.items())
            if error is None or error.code.name != "ELECTION_NOT_NEEDED"
        ]

    found = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(found)
    else:
        print_table(["PARTITION", "RESULT", "WHY"], [(r["partition"], r["result"], r["why"]) for r in found])
    if any(r["result"] != "elected" for r in found):
        raise typer.Exit(EXIT_FAILED)


def _carry_out(
    bootstrap_server: str,
    command_config: str | None,
    plan: Callable[[ClusterPlacement], Moves],
    *,
    throttle: int | None,
    wait: bool,
    dry_run: bool,
    json: bool,
    afterwards: Callable[[AsyncAdmin, Moves], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Make a plan and print it. Unless this is a dry run, submit the plan and, with `wait`, wait for its end; then call
    `afterwards`."""

    async def command(admin: AsyncAdmin) -> tuple[Moves, Mapping[TopicPartition, tuple[int, ...]]]:
        placement = await read_moving_placement(admin)
        current, planned = placement.replicas, plan(placement)
        if planned and not dry_run:
            await carry_out(admin, placement.originals, planned, throttle, wait=wait)
            if afterwards is not None:
                await afterwards(admin, planned)
        return planned, current

    try:
        planned, current = run_admin(bootstrap_server, command, read_properties(command_config))
    except MoveError as error:
        fail(str(error), EXIT_USAGE)
    if json:
        print_json(as_plan(planned))
        return
    outcome = "would move" if dry_run else "moved" if wait else "to move; see `barnabas cluster moves`"
    note(f"{counted(len(planned), 'partition')} {outcome}")
    print_table(["PARTITION", "FROM", "TO"], [(str(tp), current.get(tp, ()), to) for tp, to in sorted(planned.items())])


def _with_moves_under_way(planned: Moves, placement: ClusterPlacement, among: Iterable[TopicPartition]) -> Moves:
    """`planned`, and the current targets of those partitions of `among` that are already moving.

    Submitting the target of a running reassignment again lets it continue, and this command waits for it as well.
    """
    under_way, targets = placement.under_way, placement.targets
    return {tp: targets[tp] for tp in among if tp in under_way} | dict(planned)


def _read_plan(file: Path, placement: ClusterPlacement) -> Moves:
    try:
        rows = jsonlib.loads(file.read_text(encoding="utf-8"))["partitions"]
        planned = {TopicPartition(r["topic"], int(r["partition"])): tuple(map(int, r["replicas"])) for r in rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{file} is not a plan ({error}). Write it as kafka-reassign-partitions does: "
            '{"partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}'
        ) from error
    return {tp: to for tp, to in planned.items() if tp in placement.under_way or placement.replicas.get(tp) != to}


def _brokers(to: str | None, racks: Mapping[int, str | None]) -> dict[int, str | None]:
    if to is None:
        return dict(racks)
    chosen = [int(part) for part in to.split(",")]
    if unknown := sorted(set(chosen) - set(racks)):
        raise ValueError(
            f"--to contains the unknown broker {', '.join(map(str, unknown))}; the cluster "
            f"has the brokers {sorted(racks)}."
        )
    return {broker: racks[broker] for broker in chosen}


def _count(view: Any) -> int:
    if isinstance(view, BaseException):
        raise view
    return int(view.partition_count)
