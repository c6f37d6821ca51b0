"""Shell: before a node founds a quorum of its own, it asks the other controllers whether there is one.

one of them has heard of an epoch    there is a quorum: do not found, join it (this disk was emptied)
all of them know of none             found it (a newcomer does not even serve the quorum's APIs yet)
some do not answer                   wait: they may know
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.server.broker.quorum.parts import LISTENER
from barnabas.server.node.quorum.starting import Address
from barnabas.server.raft.machine.messages import FetchRequest, FetchResponse
from barnabas.server.raft.machine.values import NO_NODE, RaftEndpoint, ReplicaKey
from barnabas.server.raft.ports import NetworkChannel

log = get_logger("barnabas.server.node")

_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 2.0
_REPEAT_S: Final = 10.0
"""A wait is told again after so long."""


async def quorum_exists(network: NetworkChannel, others: Sequence[Address]) -> bool:
    """Waits for `others` as long as it takes, unless one of them knows of a quorum."""
    loop = asyncio.get_running_loop()
    pause, told_at = _PAUSE_S, loop.time()
    missing = list(others)
    while True:
        epochs = await asyncio.gather(*(_epoch_at(network, address) for address in missing))
        if any(epoch is not None and epoch > 0 for epoch in epochs):
            return True
        missing = [address for address, epoch in zip(missing, epochs, strict=True) if epoch is None]
        if not missing:
            return False
        if loop.time() - told_at >= _REPEAT_S:
            told_at = loop.time()
            names = ", ".join(f"{host}:{port}" for host, port in missing)
            log.warning("waiting for the other controllers: one may know of a quorum already", not_reached=names)
        await asyncio.sleep(pause)
        pause = min(pause * 2, _PAUSE_MAX_S)


async def _epoch_at(network: NetworkChannel, address: Address) -> int | None:
    """The epoch that a controller knows, 0 if it has heard of none; None if it does not answer. A fetch of epoch 0 is
    refused by whoever knows a later one, and changes nothing."""
    question = FetchRequest(ReplicaKey(NO_NODE), 0, 0, 0)
    try:
        response = await network.send(NO_NODE, (RaftEndpoint(LISTENER, *address),), question)
    except (KafkaError, OSError, TimeoutError) as error:
        if isinstance(error, KafkaError) and error.code is ErrorCode.UNSUPPORTED_VERSION:
            return 0
        log.debug("a controller did not say its epoch", address=f"{address[0]}:{address[1]}", reason=str(error))
        return None
    assert isinstance(response, FetchResponse)
    return response.epoch if response.epoch >= 0 else None
