"""Value: the options that commands of `barnabas links` share, and how they report what has changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from barnabas.cli.links.text import print_changes
from barnabas.cli.output import fail, note, print_json

if TYPE_CHECKING:
    from barnabas.client.admin.links import MirrorChange

_SECRET: Final = ("password", "jaas.config", "secret", "keystore.key")

Name = Annotated[str, typer.Argument(help="The link.", metavar="LINK")]
Topics = Annotated[
    list[str] | None,
    typer.Argument(help="Regular expressions of the topics; without any, all of the link.", metavar="[TOPIC]..."),
]
Source = Annotated[
    str | None,
    typer.Option("--source", metavar="HOST:PORT", help="The source cluster; by default the link's bootstrap servers."),
]
SourceConfig = Annotated[
    str | None, typer.Option("--source-config", metavar="FILE", help="Client settings for the source.")
]
Wait = Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the mirrors.")]


def many(help_text: str) -> Any:
    return typer.Option(help=help_text + " Repeatable.")


def warn_of_plain_secrets(client: Mapping[str, str]) -> None:
    """Warn if the client settings of a link have a password, and not only references to passwords."""
    plain = sorted(
        name for name, value in client.items() if any(part in name for part in _SECRET) and "${" not in value
    )
    if plain:
        note(
            f"warning: {', '.join(plain)}: stored as it is in __mirror_state. A reference such as ${{file:PATH:KEY}} "
            "keeps the password on the brokers (docs/LINKS.md)."
        )


def report_changes(changes: list[MirrorChange], *, json: bool, dry_run: bool) -> None:
    if json:
        print_json([asdict(change) for change in changes])
    else:
        print_changes(changes, dry_run=dry_run)
    failures = [change for change in changes if change.error is not None]
    if failures:
        fail(f"{len(failures)} of {len(changes)} topics could not be changed")
