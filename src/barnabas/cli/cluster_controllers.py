"""Shell: `barnabas cluster add-controller` and `remove-controller`: who votes on the cluster's metadata (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.options import Bootstrap, CommandConfig
from barnabas.cli.output import EXIT_USAGE, fail, note
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.quorum import QuorumReplica

Controller = Annotated[int, typer.Argument(help="The node id of the controller.")]
Directory = Annotated[
    str | None,
    typer.Option("--directory-id", help="directory.id of its meta.properties; found out when only one can be meant."),
]


def add_controller(
    controller: Controller,
    listeners: Annotated[list[str], typer.Argument(help="Where it is reached, NAME://HOST:PORT.")],
    directory_id: Directory = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Give a controller that follows the quorum a vote.

    Example: `barnabas cluster add-controller 4 CONTROLLER://host4:9093`
    """
    places = [_place(listener) for listener in listeners]

    async def command(admin: AsyncAdmin) -> None:
        found = _directory(controller, directory_id, (await admin.describe_quorum()).observers, "follows the quorum")
        await admin.add_raft_voter(controller, found, places)

    run_admin(bootstrap_server, command, read_properties(command_config))
    note(f"controller {controller} votes")


def remove_controller(
    controller: Controller,
    directory_id: Directory = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Take its vote from a controller. Stop it afterwards: while it runs, it goes on following.

    Example: `barnabas cluster remove-controller 4`
    """

    async def command(admin: AsyncAdmin) -> None:
        found = _directory(controller, directory_id, (await admin.describe_quorum()).voters, "votes")
        await admin.remove_raft_voter(controller, found)

    run_admin(bootstrap_server, command, read_properties(command_config))
    note(f"controller {controller} votes no more")


def _directory(controller: int, given: str | None, replicas: Sequence[QuorumReplica], what: str) -> UUID:
    """Raises ValueError unless exactly one can be meant."""
    from barnabas.core.ids import uuid_from_text, uuid_to_text

    if given is not None:
        return uuid_from_text(given)
    found = [replica.directory_id for replica in replicas if replica.node_id == controller]
    if not found:
        raise ValueError(
            f"No controller {controller} {what}: `barnabas cluster quorum` shows those that there are. A new one has "
            "to run first, with controller.quorum.bootstrap.servers."
        )
    if len(found) > 1:
        raise ValueError(
            f"Controller {controller} is there with several directories: choose with --directory-id one of "
            + ", ".join(map(uuid_to_text, found))
        )
    return found[0]


def _place(text: str) -> tuple[str, str, int]:
    name, sign, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not (name and sign and host and colon and port.isdigit()):
        fail(f"{text!r} is no listener: write NAME://HOST:PORT, for example CONTROLLER://host4:9093", EXIT_USAGE)
    return name, host.strip("[]"), int(port)
