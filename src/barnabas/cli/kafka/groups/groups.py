"""Shell: `kafka-groups`: lists groups of all types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.kafka.arguments import Parser, client_settings, emit_columns
from barnabas.cli.session import run_admin

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.values import GroupListing

_TYPES = ("classic", "consumer", "share", "streams")
_SHOWN = {"classic": "Classic", "consumer": "Consumer", "share": "Share", "streams": "Streams"}


def main() -> None:
    parser = Parser("kafka-groups", "List groups of all types.")
    parser.add_argument("--list", action="store_true", required=True)
    parser.add_argument("--group-type", type=str.lower, choices=_TYPES)
    parser.add_argument("--protocol")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--consumer", action="store_true", help="consumer groups of every kind, classic ones too")
    kinds.add_argument("--share", action="store_true")
    kinds.add_argument("--streams", action="store_true")
    options = parser.parse_args()

    def wanted(group: GroupListing) -> bool:
        if options.consumer:
            return group.type == "consumer" or (group.type == "classic" and group.protocol_type in ("consumer", ""))
        if options.share or options.streams:
            return group.type == ("share" if options.share else "streams")
        if options.group_type and group.type != options.group_type:
            return False
        return options.protocol is None or group.protocol_type == options.protocol

    async def command(admin: AsyncAdmin) -> None:
        rows = [
            [g.group_id, _SHOWN.get(g.type, g.type), g.protocol_type] for g in await admin.list_groups() if wanted(g)
        ]
        emit_columns([["GROUP", "TYPE", "PROTOCOL"], *rows])

    run_admin(options.bootstrap_server, command, client_settings(options))
