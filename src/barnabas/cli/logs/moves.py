"""Shell: moves replicas between log directories of one broker: `barnabas logs move`, and functions that
`kafka-reassign-partitions` uses too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer

from barnabas.cli.options import Bootstrap, CommandConfig
from barnabas.cli.output import EXIT_FAILED, EXIT_USAGE, fail, note
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin
from barnabas.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.values import TopicPartitionReplica

MOVE_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
_LOOK_S: Final = 0.5
_TRY_AGAIN_S: Final = 0.1

Moves = dict["TopicPartitionReplica", str]


def move(
    partitions: Annotated[list[str], typer.Argument(help="TOPIC:PARTITION", metavar="TOPIC:PARTITION...")],
    to: Annotated[str, typer.Option("--to", help="The directory, as `barnabas logs dirs` shows it.")],
    broker: Annotated[
        int | None, typer.Option("--broker", help="Only the replica on this broker. Default: all replicas.")
    ] = None,
    throttle: Annotated[int | None, typer.Option("--throttle", help="Maximum bytes per second, from now on.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all replicas have moved.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Move replicas to another log directory of the same broker while they remain in use.

    Example: `barnabas logs move orders:0 --to /disk2/barnabas --broker 1 --wait`

    To cancel a move, move the replica to the directory in which it already is. `barnabas logs dirs` shows the moves
    under way.
    """
    names = [_partition(text) for text in partitions]

    async def command(admin: AsyncAdmin) -> list[str]:
        from barnabas.client.values import TopicPartitionReplica

        moves: Moves = {}
        for path_owner, name in await _replicas(admin, names):
            if broker in (None, path_owner):
                moves[TopicPartitionReplica(*name, path_owner)] = to
        if missing := [f"{t}:{p}" for t, p in names if not any(r[:2] == (t, p) for r in moves)]:
            where = "any broker" if broker is None else f"broker {broker}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No replica of {', '.join(missing)} on {where}.")
        if throttle is not None:
            await set_move_rate(admin, {replica.broker_id for replica in moves}, throttle)
        refused = []
        for replica, error in (await admin.alter_replica_log_dirs(moves)).items():
            if error is not None:
                refused.append(f"{replica}: {error}")
        if wait and not refused:
            await _wait_until_moved(admin, moves)
        return refused

    refused = run_admin(bootstrap_server, command, read_properties(command_config))
    if refused:
        fail("not moved: " + "; ".join(refused), EXIT_FAILED)
    note(f"{'moved' if wait else 'moving'} to {to}")


def _partition(text: str) -> tuple[str, int]:
    topic, colon, number = text.rpartition(":")
    if not colon or not number.isdigit():
        fail(f"{text!r} is not a partition: write TOPIC:PARTITION", EXIT_USAGE)
    return topic, int(number)


async def _replicas(admin: AsyncAdmin, names: Iterable[tuple[str, int]]) -> list[tuple[int, tuple[str, int]]]:
    """(broker, partition) of each replica of the named partitions."""
    from barnabas.cli.cluster.moves_placement import read_placement

    placement, _ = await read_placement(admin)
    wanted = set(names)
    return [
        (broker, (tp.topic, tp.partition))
        for tp, replicas in placement.items()
        if (tp.topic, tp.partition) in wanted
        for broker in replicas
    ]


async def _wait_until_moved(admin: AsyncAdmin, moves: Moves) -> None:
    """Wait until all replicas are in their new directories. Raises KafkaError if a move ends before that."""
    left = len(moves) + 1
    while True:
        found = await admin.describe_replica_log_dirs(moves)
        there = [replica for replica, dirs in found.items() if dirs.current == moves[replica] and dirs.future is None]
        stopped = [r for r, dirs in found.items() if dirs.current != moves[r] and dirs.future != moves[r]]
        if stopped:
            # the broker may have swapped the directories between the two requests
            again = (await admin.describe_replica_log_dirs(stopped)).items()
            stuck = [str(r) for r, dirs in again if moves[r] not in (dirs.current, dirs.future)]
            if stuck:
                why = "see the broker's log for the reason"
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{', '.join(stuck)} stopped moving: {why}.")
        if len(there) == len(moves):
            return
        if len(moves) - len(there) < left:
            left = len(moves) - len(there)
            note(f"{len(there)} of {len(moves)} moved")
        await asyncio.sleep(_LOOK_S)


async def start_moves(
    admin: AsyncAdmin, moves: Mapping[TopicPartitionReplica, str], timeout_s: float
) -> list[TopicPartitionReplica]:
    """Submit the moves and return the replicas in the order in which their moves were accepted.

    A move of a replica that does not exist yet is repeated until the replica exists. Raises KafkaError for any other
    refusal and after the timeout.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    left = dict(moves)
    begun: list[TopicPartitionReplica] = []
    while True:
        outcomes = await admin.alter_replica_log_dirs(left)
        for error in outcomes.values():
            if error is not None and error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
                raise error
        started = sorted(replica for replica, error in outcomes.items() if error is None)
        begun += started
        for replica in started:
            del left[replica]
        if not left:
            return begun
        if loop.time() >= end:
            names = ",".join(map(str, sorted(left)))
            many = "s" if len(left) > 1 else ""
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"Timed out before log directory move{many} could be started for: {names}"
            )
        await asyncio.sleep(_TRY_AGAIN_S)


async def set_move_rate(admin: AsyncAdmin, brokers: Iterable[int], bytes_per_second: int | None) -> None:
    """Set the rate at which these brokers move replicas between their log directories; None removes the limit."""
    from barnabas.client.values import AlterOp, ConfigChange, ConfigResource, ConfigResourceType

    change = (
        ConfigChange(MOVE_RATE, None, AlterOp.DELETE)
        if bytes_per_second is None
        else ConfigChange(MOVE_RATE, str(bytes_per_second))
    )
    changes = {ConfigResource(ConfigResourceType.BROKER, str(broker)): [change] for broker in sorted(brokers)}
    for error in (await admin.incremental_alter_configs(changes)).values():
        if error is not None:
            raise error
