#!/usr/bin/env bash
# connect-plugin-path by the name that Kafka's distribution gives it; needs `make setup` once.
exec "$(dirname "$0")/../.venv/bin/connect-plugin-path" "$@"
