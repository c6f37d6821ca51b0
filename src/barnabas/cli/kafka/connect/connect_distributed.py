"""Shell: `connect-distributed`: a worker of a Connect cluster, as `barnabas connect serve` runs it."""

from __future__ import annotations

from barnabas.cli.kafka.arguments import Parser


def main() -> None:
    parser = Parser("connect-distributed", "Run a worker of a Connect cluster, and its REST API.", bootstrap=False)
    parser.refuse("-daemon", why="run the worker in the background by your shell or by systemd")
    parser.add_argument("worker_properties", metavar="connect-distributed.properties")
    options = parser.parse_args()
    from barnabas.cli.spark.connect import connect_serve

    connect_serve(options.worker_properties)
