#!/usr/bin/env bash
# kafka-streams-application-reset by the name that Kafka's distribution gives it; needs `make setup` once.
exec "$(dirname "$0")/../.venv/bin/kafka-streams-application-reset" "$@"
