"""Shell: `barnabas cluster add-controller` and `remove-controller`: change the voters of the quorum (KIP-853)."""

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
    typer.Option(
        "--directory-id", help="directory.id in its meta.properties; needed only if the controller has several."
    ),
]


def add_controller(
    controller: Controller,
    listeners: Annotated[list[str], typer.Argument(help="The controller's listeners, NAME://HOST:PORT.")],
    directory_id: Directory = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Make an observer of the controller quorum a voter.

    Example: `barnabas cluster add-controller 4 CONTROLLER://host4:9093`
    """
    endpoints = [_endpoint(listener) for listener in listeners]

    async def command(admin: AsyncAdmin) -> None:
        found = _directory(
            controller, directory_id, (await admin.describe_quorum()).observers, "is an observer of the quorum"
        )
        await admin.add_raft_voter(controller, found, endpoints)

    run_admin(bootstrap_server, command, read_properties(command_config))
    note(f"controller {controller} is a voter")


def remove_controller(
    controller: Controller,
    directory_id: Directory = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Remove a voter from the controller quorum. Stop the controller afterwards: a running one remains as an observer.

    Example: `barnabas cluster remove-controller 4`
    """

    async def command(admin: AsyncAdmin) -> None:
        found = _directory(controller, directory_id, (await admin.describe_quorum()).voters, "is a voter")
        await admin.remove_raft_voter(controller, found)

    run_admin(bootstrap_server, command, read_properties(command_config))
    note(f"controller {controller} is not a voter any more")


def _directory(controller: int, given: str | None, replicas: Sequence[QuorumReplica], what: str) -> UUID:
    """The directory id of the controller: `given`, or the only one that `replicas` have. Raises ValueError unless there
    is exactly one.
    """
    from barnabas.core.ids import uuid_from_text, uuid_to_text

    if given is not None:
        return uuid_from_text(given)
    found = [replica.directory_id for replica in replicas if replica.node_id == controller]
    if not found:
        raise ValueError(
            f"No controller {controller} {what}: `barnabas cluster quorum` lists the controllers. A new controller "
            "must be running first, with controller.quorum.bootstrap.servers."
        )
    if len(found) > 1:
        raise ValueError(
            f"Controller {controller} has several directories: choose one of them with --directory-id: "
            + ", ".join(map(uuid_to_text, found))
        )
    return found[0]


def _endpoint(text: str) -> tuple[str, str, int]:
    name, sign, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not (name and sign and host and colon and port.isdigit()):
        fail(f"{text!r} is not a listener: write NAME://HOST:PORT, for example CONTROLLER://host4:9093", EXIT_USAGE)
    return name, host.strip("[]"), int(port)
