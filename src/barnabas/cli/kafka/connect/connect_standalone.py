"""Shell: `connect-standalone`: the connectors of some files in one process, as `barnabas connect standalone` runs
them.
"""

from __future__ import annotations

from barnabas.cli.kafka.arguments import Parser


def main() -> None:
    parser = Parser(
        "connect-standalone", "Run the connectors of some files until the process is stopped.", bootstrap=False
    )
    parser.refuse("-daemon", why="run the worker in the background by your shell or by systemd")
    parser.add_argument("worker_properties", metavar="connect-standalone.properties")
    parser.add_argument("connectors", nargs="+", metavar="connector.properties", help="a properties file, or JSON")
    options = parser.parse_args()
    from barnabas.cli.spark.connect import connect_standalone

    connect_standalone(options.worker_properties, options.connectors)
