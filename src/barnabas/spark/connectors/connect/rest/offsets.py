"""Shell: handlers of /connectors/N/offsets. Offsets can be changed while the connector is STOPPED."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.spark.connectors.connect.cluster.values import (
    ConnectorEntry,
    ConnectorState,
    ConnectRequestError,
    TargetState,
)
from barnabas.spark.connectors.connect.rest.calls import ConnectCall


async def read_offsets(call: ConnectCall) -> Any:
    entry = call.state.connector(call.name)
    return {"offsets": await call.services.offsets.read(entry.name, entry.config)}


async def alter_offsets(call: ConnectCall) -> Any:
    """Set offsets; an offset of null lets the partition begin anew."""
    body = call.body()
    changes = body.get("offsets")
    if not isinstance(changes, list) or not changes:
        raise ConnectRequestError(400, "Partitions / offsets need to be provided for an alter offsets request")
    pairs: list[tuple[Mapping[str, Any], Mapping[str, Any] | None]] = []
    for change in changes:
        partition = change.get("partition") if isinstance(change, dict) else None
        offset = change.get("offset") if isinstance(change, dict) else None
        if not isinstance(partition, dict) or not isinstance(offset, dict | None):
            raise ConnectRequestError(
                400, "Each element of 'offsets' must have a 'partition' and an 'offset' (or null)."
            )
        pairs.append((partition, offset))
    entry = _stopped(call, "altered")
    await call.services.offsets.alter(entry.name, entry.config, pairs)
    return {"message": "The offsets for this connector have been altered successfully"}


async def reset_offsets(call: ConnectCall) -> Any:
    """Let the connector begin anew."""
    entry = _stopped(call, "reset")
    await call.services.offsets.reset(entry.name)
    return {"message": "The offsets for this connector have been reset successfully"}


def _stopped(call: ConnectCall, verb: str) -> ConnectorEntry:
    """The connector, which must be STOPPED, and which the worker that ran it must have reported as STOPPED."""
    entry = call.state.connector(call.name)
    if entry.target is not TargetState.STOPPED:
        raise ConnectRequestError(
            400,
            f"Connectors must be in the STOPPED state before their offsets can be {verb}. This can be done for the"
            f" specified connector by issuing a 'PUT' request to the '/connectors/{entry.name}/stop' endpoint",
        )
    status = call.board.connector(entry.name)
    if status is None or status.state is not ConnectorState.STOPPED:
        raise ConnectRequestError(
            409, f"Connector {entry.name} is being stopped. Its offsets can be {verb} when its state is STOPPED."
        )
    return entry
