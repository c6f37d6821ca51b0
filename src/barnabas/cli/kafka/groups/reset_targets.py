"""Shell: the flags of --reset-offsets that say to which position offsets are reset."""

from __future__ import annotations

import argparse

from barnabas.cli.kafka.arguments import Parser
from barnabas.client.admin.offset_resets import ResetTarget


def add_reset_targets(parser: Parser) -> None:
    targets = parser.add_mutually_exclusive_group()
    targets.add_argument("--to-earliest", action="store_true")
    targets.add_argument("--to-latest", action="store_true")
    targets.add_argument("--to-current", action="store_true")
    targets.add_argument("--to-offset", type=int)
    targets.add_argument("--to-datetime")
    targets.add_argument("--by-duration")
    targets.add_argument("--shift-by", type=int)
    targets.add_argument("--from-file")


def reset_target(options: argparse.Namespace, parser: Parser) -> ResetTarget:
    """The position that the options name. Ends the tool with its usage if they name none, or one that cannot be
    parsed; --export without a position exports the current offsets.
    """
    named = {"to_earliest": "earliest", "to_latest": "latest", "to_current": "current"}
    try:
        for flag, kind in named.items():
            if getattr(options, flag):
                return ResetTarget(kind)
        if options.to_offset is not None:
            return ResetTarget("offset", options.to_offset)
        if options.shift_by is not None:
            return ResetTarget("shift", options.shift_by)
        if options.to_datetime or options.by_duration:
            return ResetTarget.parse(options.to_datetime or options.by_duration)
        if options.from_file:
            return ResetTarget.from_file(options.from_file)
    except ValueError as error:
        parser.error(str(error))
    if not options.export:
        parser.error(
            "--reset-offsets needs one of --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, "
            "--by-duration, --shift-by, --from-file"
        )
    return ResetTarget("current")
