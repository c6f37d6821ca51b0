"""Shell: the command `kafka-server-start server.properties [--override name=value ...]` starts a server."""

from __future__ import annotations

import sys

from barnabas.cli.kafka.arguments import Parser


def main() -> None:
    parser = Parser("kafka-server-start", "Start the server in the foreground.", bootstrap=False)
    parser.add_argument("properties", metavar="server.properties")
    parser.add_argument("--override", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("-daemon", action="store_true", help="accepted and ignored: run it under a supervisor")
    options = parser.parse_args()
    arguments = ["barnabas", "serve", "--config", options.properties]
    for pair in options.override:
        arguments += ["-c", pair]
    sys.argv = arguments
    from barnabas.cli.app import main as run

    run()
