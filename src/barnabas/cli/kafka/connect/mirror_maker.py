"""Shell: `connect-mirror-maker`: runs MirrorMaker's file, as `barnabas mirror run` does."""

from __future__ import annotations

from barnabas.cli.kafka.arguments import Parser


def main() -> None:
    parser = Parser("connect-mirror-maker", "MirrorMaker 2.0 driver", bootstrap=False)
    parser.add_argument("config", metavar="mm2.properties", help="MM2 configuration file.")
    parser.add_argument(
        "--clusters", nargs="+", metavar="CLUSTER", default=[], help="Target cluster to use for this node."
    )
    options = parser.parse_args()
    from barnabas.cli.spark.mirror_run import run_mirror

    run_mirror(options.config, [name for given in options.clusters for name in given.split(",") if name])
