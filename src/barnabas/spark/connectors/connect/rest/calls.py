"""Value: one request with typed arguments. Invalid arguments raise ConnectRequestError."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.spark.connectors.connect.cluster.ports import ConnectorRuntime, OffsetStore
from barnabas.spark.connectors.connect.cluster.state import ConnectState, StatusBoard
from barnabas.spark.connectors.connect.cluster.values import ConnectRequestError
from barnabas.spark.connectors.connect.cluster.worker import ConnectStore
from barnabas.spark.connectors.connect.rest.loggers import WorkerLoggers


@dataclass(frozen=True, slots=True)
class ConnectServices:
    """What the handlers use."""

    store: ConnectStore
    runtime: ConnectorRuntime
    offsets: OffsetStore
    loggers: WorkerLoggers
    cluster_id: str
    topic_tracking: bool = True
    topic_tracking_reset: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """A response that is not 200 with a JSON document. `body` None is a response without a body."""

    status: int
    body: Any = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectCall:
    """The argument of each handler."""

    services: ConnectServices
    arguments: Mapping[str, str]
    query: Mapping[str, Sequence[str]]
    raw_body: bytes

    @property
    def state(self) -> ConnectState:
        return self.services.store.state

    @property
    def board(self) -> StatusBoard:
        return self.services.store.board

    @property
    def name(self) -> str:
        """The connector in the path."""
        return self.arguments["connector"]

    @property
    def task(self) -> int:
        """The number of the task in the path."""
        text = self.arguments["task"]
        if not text.isascii() or not text.isdecimal() or len(text) > 9:
            raise ConnectRequestError(404, f"{text!r} is not the number of a task.")
        return int(text)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A boolean query parameter."""
        values = self.query.get(name)
        return default if not values else values[-1].lower() == "true"

    def body(self) -> dict[str, Any]:
        """The request body as a JSON object."""
        try:
            document = json.loads(self.raw_body)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise ConnectRequestError(400, "The body of the request must be a JSON object.")
        return document


def config_texts(value: Any, what: str) -> dict[str, str]:
    """The configuration in a request: texts by name. Numbers and booleans become texts. Raises ConnectRequestError."""
    return {key: text for key, text in nullable_texts(value, what).items() if text is not None}


def nullable_texts(value: Any, what: str) -> dict[str, str | None]:
    """As `config_texts`, with the keys whose value is null."""
    if not isinstance(value, Mapping):
        raise ConnectRequestError(400, f"{what} must be an object of configuration keys and their values.")
    found: dict[str, str | None] = {}
    for key, item in value.items():
        if isinstance(item, (dict, list)):
            raise ConnectRequestError(400, f"{key} must be a text, not {json.dumps(item)[:100]}.")
        if isinstance(item, bool):
            found[key] = "true" if item else "false"
        else:
            found[key] = None if item is None else str(item)
    return found
