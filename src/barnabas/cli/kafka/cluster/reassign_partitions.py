"""Shell: `kafka-reassign-partitions`: generates, executes, verifies, lists and cancels moves of replicas.

In a plan, `log_dirs` may give a directory for each replica, or "any". A replica that exists on the broker moves to its
directory; a new replica is created there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.cluster.moves_execution import as_plan
from barnabas.cli.cluster.moves_placement import read_moving_placement, read_placement
from barnabas.cli.cluster.moves_throttle import clear_throttle, throttled
from barnabas.cli.kafka.arguments import Parser, client_settings, emit
from barnabas.cli.logs.moves import MOVE_RATE, set_move_rate, start_moves
from barnabas.cli.session import run_admin
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.values import TopicPartitionReplica

Plan = dict[TopicPartition, tuple[int, ...]]
LogMoves = dict["TopicPartitionReplica", str]
ANY: Final = "any"
ACTIONS = ("generate", "execute", "verify", "list", "cancel")


def build_parser() -> Parser:
    parser = Parser("kafka-reassign-partitions", "Move replicas between brokers, and between their directories.")
    actions = parser.add_mutually_exclusive_group(required=True)
    for action in ACTIONS:
        actions.add_argument(f"--{action}", dest="action", action="store_const", const=action)
    parser.add_argument("--topics-to-move-json-file", metavar="FILE", help="with --generate: the topics")
    parser.add_argument("--broker-list", metavar="ID,ID", help="with --generate: the brokers for the replicas")
    parser.add_argument("--disable-rack-aware", action="store_true", help="with --generate: ignore racks")
    parser.add_argument("--reassignment-json-file", metavar="FILE", help="the plan")
    parser.add_argument(
        "--throttle", type=int, default=-1, metavar="B/s", help=("with --execute: the maximum rate of replication")
    )
    parser.add_argument("--preserve-throttles", action="store_true", help="with --verify, --cancel: keep throttles")
    parser.add_argument(
        "--additional", action="store_true", help="with --execute: allow it while other reassignments run"
    )
    parser.add_argument(
        "--timeout",
        type=int,
        default=10_000,
        help=("with --execute: the time in ms in which moves of log directories must begin"),
    )
    parser.add_argument("--disallow-replication-factor-change", action="store_true", help="with --execute")
    parser.add_argument(
        "--replica-alter-log-dirs-throttle", type=int, default=-1, metavar="B/s",
        help="with --execute: the maximum rate of moves between log directories",
    )  # fmt: skip
    parser.refuse("--bootstrap-controller", why="use --bootstrap-server with the address of a broker")
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    needs = {
        "generate": ("topics_to_move_json_file", "broker_list"),
        "list": (),
    }.get(options.action, ("reassignment_json_file",))
    for name in needs:
        if getattr(options, name) is None:
            parser.error(f"--{options.action} needs --{name.replace('_', '-')}")

    async def command(admin: AsyncAdmin) -> None:
        await globals()[f"_{options.action}"](admin, options)

    run_admin(options.bootstrap_server, command, client_settings(options))


async def _generate(admin: AsyncAdmin, options: argparse.Namespace) -> None:
    from barnabas.core.rng import system_rng
    from barnabas.protocol.assign.placement import UsableBroker, place_replicas

    placement = await read_moving_placement(admin)
    topics = [row["topic"] for row in _read(options.topics_to_move_json_file)["topics"]]
    brokers = [int(broker) for broker in options.broker_list.split(",")]
    usable = [UsableBroker(b, None if options.disable_rack_aware else placement.racks.get(b)) for b in brokers]
    before = {tp: replicas for tp, replicas in placement.originals.items() if tp.topic in topics}
    targets = placement.targets
    proposed: Plan = {}
    for topic in topics:
        mine = [tp for tp in before if tp.topic == topic]
        if not mine:
            raise ValueError(f"Topic {topic} not found.")
        placed = place_replicas(usable, len(mine), len(targets[mine[0]]), system_rng())
        proposed.update(zip(mine, placed, strict=True))
    emit(f"Current partition replica assignment\n{_text(before)}\n")
    emit(f"Proposed partition reassignment configuration\n{_text(proposed)}")


async def _execute(admin: AsyncAdmin, options: argparse.Namespace) -> None:
    plan, log_moves = _plan(options.reassignment_json_file)
    if not options.additional and await admin.list_partition_reassignments():
        raise ValueError(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override, "
            "also with the same plan to change the throttle"
        )
    current = (await read_moving_placement(admin)).originals
    if unknown := [str(tp) for tp in plan if tp not in current]:
        raise ValueError(f"Partitions that do not exist: {', '.join(unknown)}")
    if options.disallow_replication_factor_change:
        changed = [str(tp) for tp, replicas in plan.items() if len(replicas) != len(current[tp])]
        if changed:
            raise ValueError(f"The replication factor of {', '.join(changed)} would change.")
    before = await _current_log_dirs(admin, current, plan) if log_moves else {}
    emit(f"Current partition replica assignment\n\n{_text({tp: current[tp] for tp in plan}, before)}\n")
    emit("Save this to use as the --reassignment-json-file option during rollback")
    rate = options.throttle if options.throttle >= 0 else None
    if rate is not None or (log_moves and options.replica_alter_log_dirs_throttle >= 0):
        emit(
            "Warning: You must run --verify periodically, until the reassignment completes, "
            "to ensure the throttle is removed."
        )
    async with throttled(admin, current, plan, rate, remover="--verify, when no reassignment is under way,"):
        if rate is not None:
            emit(f"The inter-broker throttle limit was set to {rate} B/s")
        if log_moves:
            await _begin_log_moves(admin, log_moves, options.replica_alter_log_dirs_throttle)
        _raise_first(await admin.alter_partition_reassignments(dict(plan)))
    many = "s" if len(plan) > 1 else ""
    emit(f"Successfully started partition reassignment{many} for {','.join(map(str, sorted(plan)))}")
    for replica in await start_moves(admin, log_moves, options.timeout / 1000) if log_moves else ():
        where = f"{replica.topic}-{replica.partition} with broker {replica.broker_id}"
        emit(f"Successfully started moving log directory to {log_moves[replica]} for replica {where}")


async def _begin_log_moves(admin: AsyncAdmin, log_moves: LogMoves, rate: int) -> None:
    """Begin the moves of replicas that exist. A replica that does not exist yet will be created in its directory."""
    if rate >= 0:
        await set_move_rate(admin, {replica.broker_id for replica in log_moves}, rate)
        emit(f"The replica-alter-dir throttle limit was set to {rate} B/s")
    await admin.alter_replica_log_dirs(log_moves)


async def _verify(admin: AsyncAdmin, options: argparse.Namespace) -> None:
    plan, log_moves = _plan(options.reassignment_json_file)
    under_way = await admin.list_partition_reassignments(plan)
    current, _ = await read_placement(admin)
    emit("Status of partition reassignment:")
    for tp, target in sorted(plan.items()):
        if tp in under_way:
            emit(f"Reassignment of partition {tp} is still in progress.")
        elif current.get(tp) == target:
            emit(f"Reassignment of partition {tp} is completed.")
        else:
            found = ",".join(map(str, current.get(tp, ())))
            emit(
                f"There is no active reassignment of partition {tp}, but replica set is {found} rather than "
                f"{','.join(map(str, target))}."
            )
    moving = await _verify_logs(admin, log_moves)
    if not moving and not await admin.list_partition_reassignments() and not options.preserve_throttles:
        await _clear_throttles(admin, plan, also=[MOVE_RATE])


async def _verify_logs(admin: AsyncAdmin, moves: LogMoves) -> bool:
    """Print for each replica whether it has moved to its planned directory. Returns whether any replica is still
    moving.
    """
    if not moves:
        return False
    moving = False
    for replica, dirs in sorted((await admin.describe_replica_log_dirs(moves)).items()):
        target = moves[replica]
        where = f"Partition {replica.topic}-{replica.partition} on broker {replica.broker_id}"
        moving = moving or dirs.future is not None
        if dirs.future == target:
            emit(f"Reassignment of replica {replica} is still in progress.")
        elif dirs.future is not None:
            emit(f"{where} is being moved to log dir {dirs.future} instead of {target}.")
        elif dirs.current == target:
            emit(f"Reassignment of replica {replica} completed successfully.")
        elif dirs.current is not None:
            emit(f"{where} is not being moved from log dir {dirs.current} to {target}.")
        else:
            emit(
                f"Partition {replica.topic}-{replica.partition} cannot be found in any live log directory on broker "
                f"{replica.broker_id}."
            )
    return moving


async def _list(admin: AsyncAdmin, options: argparse.Namespace) -> None:
    under_way = await admin.list_partition_reassignments()
    if not under_way:
        emit("No partition reassignments found.")
        return
    emit("Current partition reassignments:")
    for tp, move in sorted(under_way.items()):
        line = f"{tp}: replicas: {_ids(move.replicas)}."
        line += f" adding: {_ids(move.adding)}." if move.adding else ""
        line += f" removing: {_ids(move.removing)}." if move.removing else ""
        emit(line)


async def _cancel(admin: AsyncAdmin, options: argparse.Namespace) -> None:
    plan, log_moves = _plan(options.reassignment_json_file)
    under_way = await admin.list_partition_reassignments(plan)
    if under_way:
        _raise_first(await admin.alter_partition_reassignments(dict.fromkeys(under_way)))
        many = "s" if len(under_way) > 1 else ""
        emit(f"Successfully cancelled partition reassignment{many} for: {','.join(map(str, sorted(under_way)))}")
    else:
        emit("None of the specified partition moves are active.")
    if log_moves:
        found = await admin.describe_replica_log_dirs(log_moves)
        back = {replica: dirs.current for replica, dirs in found.items() if dirs.future and dirs.current}
        _raise_first(await admin.alter_replica_log_dirs(back) if back else {})
        if back:
            many = "s" if len(back) > 1 else ""
            emit(f"Successfully cancelled log directory move{many} for: {_names(back)}")
        else:
            emit("None of the specified replica moves are active.")
    if not options.preserve_throttles:
        await _clear_throttles(admin, plan, also=[MOVE_RATE] if log_moves else [])


async def _clear_throttles(admin: AsyncAdmin, plan: Plan, also: Sequence[str]) -> None:
    """Remove the throttled replicas of the plan's topics, and the rates of the plan's brokers and of all running ones.

    `also` names further configs of these brokers to remove. What reassignments under way need is kept.
    """
    brokers = {broker for replicas in plan.values() for broker in replicas}
    cleared = await clear_throttle(admin, _topics(plan), brokers, also=also)
    many = "" if len(cleared.brokers) == 1 else "s"
    emit(f"\nClearing broker-level throttles on broker{many} {_ids(cleared.brokers)}")
    many = "" if len(cleared.topics) == 1 else "s"
    emit(f"Clearing topic-level throttles on topic{many} {','.join(cleared.topics)}")


def _plan(path: str) -> tuple[Plan, LogMoves]:
    """The plan in a file: the replicas of each partition, and the log directories of some of the replicas."""
    from barnabas.client.values import TopicPartitionReplica

    plan: Plan = {}
    log_moves: LogMoves = {}
    for row in _read(path)["partitions"]:
        tp = TopicPartition(str(row["topic"]), int(row["partition"]))
        if tp in plan:
            raise ValueError(f"Partition reassignment contains duplicate topic partitions: {tp}")
        plan[tp] = tuple(int(replica) for replica in row["replicas"])
        log_dirs = row.get("log_dirs") or [ANY] * len(plan[tp])
        if len(log_dirs) != len(plan[tp]):
            raise ValueError(f"Partition {tp} has {len(plan[tp])} replicas and {len(log_dirs)} log_dirs")
        for broker, path_there in zip(plan[tp], log_dirs, strict=True):
            if path_there != ANY:
                log_moves[TopicPartitionReplica(tp.topic, tp.partition, broker)] = str(path_there)
    if not plan:
        raise ValueError("Partition reassignment list cannot be empty")
    return plan, log_moves


def _read(path: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from error
    return found


def _names(replicas: Iterable[TopicPartitionReplica]) -> str:
    return ",".join(map(str, sorted(replicas)))


async def _current_log_dirs(admin: AsyncAdmin, current: Mapping[TopicPartition, Sequence[int]], plan: Plan) -> LogMoves:
    """The present log directories of the plan's replicas, so that the printed assignment restores them too."""
    from barnabas.client.values import TopicPartitionReplica

    replicas = [TopicPartitionReplica(tp.topic, tp.partition, broker) for tp in plan for broker in current[tp]]
    found = await admin.describe_replica_log_dirs(replicas)
    return {replica: dirs.current for replica, dirs in found.items() if dirs.current is not None}


def _text(plan: Mapping[TopicPartition, Sequence[int]], log_dirs: Mapping[Any, str] | None = None) -> str:
    rows = []
    for row in as_plan(plan)["partitions"]:
        places = [(log_dirs or {}).get((row["topic"], row["partition"], broker), ANY) for broker in row["replicas"]]
        rows.append({**row, "log_dirs": places})
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


def _topics(plan: Plan) -> list[str]:
    return sorted({tp.topic for tp in plan})


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def _raise_first(results: Mapping[Any, KafkaError | None]) -> None:
    for error in results.values():
        if error is not None:
            raise error
