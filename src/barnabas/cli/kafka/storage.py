"""Shell: `kafka-storage`: random-uuid, format and info. Formatting is never needed here; scripts do it all the same."""

from __future__ import annotations

from pathlib import Path

from barnabas.cli.kafka.arguments import Parser, emit
from barnabas.cli.output import fail
from barnabas.cli.session import read_properties
from barnabas.core.ids import uuid_to_text
from barnabas.core.properties import parse_properties, render_properties
from barnabas.core.rng import random_uuid, system_rng


def main() -> None:
    parser = Parser("kafka-storage", "Prepare or look at a broker's log directories.", bootstrap=False)
    actions = parser.add_subparsers(dest="action", required=True, parser_class=_SubParser)
    actions.add_parser("random-uuid", help="print a new cluster id")
    for action in ("format", "info"):
        sub = actions.add_parser(action)
        sub.add_argument("--config", "-c", required=True, metavar="FILE")
        if action == "format":
            sub.add_argument("--cluster-id", "-t", required=True)
            sub.add_argument("--ignore-formatted", "-g", action="store_true")
            sub.add_argument("--standalone", "-s", action="store_true")
            sub.add_argument("--no-initial-controllers", "-N", action="store_true")
            sub.add_argument("--initial-controllers", "-I")
            sub.add_argument("--release-version", "-r")
            sub.add_argument("--feature", "-f", action="append")
    options = parser.parse_args()
    if options.action == "random-uuid":
        emit(uuid_to_text(random_uuid(system_rng())))
        return
    settings = {name: str(value) for name, value in read_properties(options.config).items()}
    folders = [Path(d.strip()) for d in settings.get("log.dirs", settings.get("log.dir", "/tmp/kafka-logs")).split(",")]
    if options.action == "info":
        _info(folders)
    else:
        _format(folders, settings, options.cluster_id, ignore_formatted=options.ignore_formatted)


class _SubParser(Parser):
    def __init__(self, **keywords: object) -> None:
        super().__init__(str(keywords["prog"]), str(keywords.get("description") or ""), bootstrap=False)


def _info(folders: list[Path]) -> None:
    emit("Found log directories:" if len(folders) > 1 else "Found log directory:")
    for folder in folders:
        emit(f"  {folder}")
    for folder in folders:
        path = folder / "meta.properties"
        if path.exists():
            emit(f"\nFound metadata: {parse_properties(path.read_text(encoding='utf-8'))}")
        else:
            emit(f"\n{folder} is not formatted yet; `barnabas serve` will do that by itself.")


def _format(folders: list[Path], settings: dict[str, str], cluster_id: str, *, ignore_formatted: bool) -> None:
    node = settings.get("node.id", settings.get("broker.id", "1"))
    for folder in folders:
        path = folder / "meta.properties"
        if path.exists():
            if ignore_formatted:
                continue
            fail(f"{folder} is already formatted. Use --ignore-formatted to leave such directories as they are.")
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(
            render_properties({"version": "1", "cluster.id": cluster_id, "node.id": node}), encoding="utf-8"
        )
        emit(f"Formatting {folder} for cluster {cluster_id}.")
