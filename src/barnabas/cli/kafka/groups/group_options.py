"""Shell: the flags that kafka-share-groups and kafka-streams-groups have in common: actions, groups, what is shown."""

from __future__ import annotations

from typing import Final

from barnabas.cli.kafka.arguments import Parser

TIMEOUT_MS: Final = 30_000


def add_group_options(parser: Parser) -> None:
    actions = parser.add_mutually_exclusive_group(required=True)
    for action in ("list", "describe", "delete", "reset-offsets", "delete-offsets"):
        actions.add_argument(f"--{action}", action="store_true")
    parser.add_argument("--group", action="append", default=[])
    parser.add_argument("--all-groups", action="store_true")
    parser.add_argument("--timeout", type=int, default=TIMEOUT_MS)
    parser.add_argument("--state", nargs="?", const="", help="with --list: show or filter by state; with --describe")
    parser.add_argument("--members", action="store_true")
    parser.add_argument("--offsets", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--execute", action="store_true")
