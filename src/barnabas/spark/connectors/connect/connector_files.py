"""Codec: the files of `barnabas connect standalone` -> connectors, and the settings of the worker.

A file of a connector is a properties file, or JSON: an object of texts, or `{"name", "config", "initial_state"}` as in
`POST /connectors`. The worker's file is that of Connect's standalone worker: `offset.storage.file.filename` says where
the progress is. Here the progress is in checkpoints, in a directory beside that file, or below `storage.location`.
Source: org.apache.kafka.connect.cli.ConnectStandalone, StandaloneConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from barnabas.core.errors import BarnabasError
from barnabas.core.properties import parse_properties
from barnabas.core.reprs import repr_without
from barnabas.spark.connectors.connect.cluster.values import ConnectorState
from barnabas.spark.connectors.connect.worker_config import (
    ConnectWorkerConfig,
    WorkerConfigError,
    parse_worker_config,
)

OFFSETS_FILE: Final = "offset.storage.file.filename"
_OF_CLUSTERS: Final = ("group.id", "config.storage.topic", "status.storage.topic")
_STATES: Final = (ConnectorState.RUNNING, ConnectorState.PAUSED, ConnectorState.STOPPED)


class ConnectorFileError(BarnabasError, ValueError):
    """The file of a connector cannot be understood, or its configuration has errors."""


class ConnectorFile(msgspec.Struct, frozen=True):
    """A connector from a file, and the state that it begins with: RUNNING, PAUSED or STOPPED."""

    name: str
    config: Mapping[str, str]
    initial_state: ConnectorState = ConnectorState.RUNNING

    __repr__ = repr_without("config")


def parse_connector_file(text: str, path: str) -> ConnectorFile:
    """The connector in a file. `path` is for errors. Raises ConnectorFileError."""
    state = ConnectorState.RUNNING
    if text.lstrip().startswith("{"):
        try:
            document = msgspec.json.decode(text.encode())
        except msgspec.DecodeError as error:
            raise ConnectorFileError(f"{path} is not JSON: {error}") from None
        if isinstance(document.get("config"), dict):
            unknown = sorted(set(document) - {"name", "config", "initial_state"})
            if unknown:
                raise ConnectorFileError(f"{path} has {unknown[0]} beside name, config and initial_state: remove it")
            state = _state(str(document.get("initial_state", "RUNNING")), path)
            config = _texts(document["config"], path)
            config = {"name": str(document["name"]), **config} if "name" in document else config
        else:
            config = _texts(document, path)
    else:
        try:
            config = parse_properties(text)
        except ValueError as error:
            raise ConnectorFileError(f"{path} cannot be read: {error}") from None
    for key in ("name", "connector.class"):
        if not config.get(key, "").strip():
            raise ConnectorFileError(f"{path} has no {key}: each connector must have a name and a connector.class")
    return ConnectorFile(config["name"].strip(), config, state)


def _texts(document: Mapping[str, Any], path: str) -> dict[str, str]:
    config: dict[str, str] = {}
    for name, value in document.items():
        match value:
            case None:
                continue
            case bool():
                config[name] = "true" if value else "false"
            case str() | int() | float():
                config[name] = str(value)
            case _:
                kind = type(value).__name__
                raise ConnectorFileError(
                    f"{path}: {name} must be a string, a number or a boolean, got {kind}: write a string"
                )
    return config


def _state(word: str, path: str) -> ConnectorState:
    found = next((state for state in _STATES if state == word.upper()), None)
    if found is None:
        raise ConnectorFileError(f"{path}: initial_state must be one of {', '.join(_STATES)}, got {word!r}")
    return found


def parse_standalone_config(properties: Mapping[str, str]) -> ConnectWorkerConfig:
    """The settings in the worker's file. Raises WorkerConfigError."""
    texts = dict(properties)
    file_name = texts.pop(OFFSETS_FILE, "").strip()
    if not texts.get("storage.location", "").strip():
        if not file_name:
            raise WorkerConfigError(
                f"the worker needs {OFFSETS_FILE} or storage.location: where the progress of the connectors is kept, "
                "for example offset.storage.file.filename=/var/lib/connect/offsets"
            )
        texts["storage.location"] = Path(f"{file_name}.barnabas").absolute().as_uri()
    return parse_worker_config({**dict.fromkeys(_OF_CLUSTERS, "standalone"), **texts})
