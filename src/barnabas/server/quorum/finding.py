"""Shell: checks whether the other controllers have a quorum, before a node founds a new one.

one of them has an epoch > 0      a quorum exists: do not found another (this node's disk may have been emptied)
all have epoch 0                  no quorum exists (a new controller does not serve Raft's requests yet; it counts as 0)
some do not answer                wait: they may have a quorum
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.server.broker.quorum.parts import LISTENER
from barnabas.server.quorum.starting import Address
from barnabas.server.raft.machine.messages import FetchRequest, FetchResponse
from barnabas.server.raft.machine.values import NO_NODE, RaftEndpoint, ReplicaKey
from barnabas.server.raft.ports import NetworkChannel

log = get_logger("barnabas.server.node")

_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 2.0
_REPEAT_S: Final = 10.0
"""The seconds between two warnings while the node waits."""


async def quorum_exists(network: NetworkChannel, others: Sequence[Address]) -> bool:
    """Return whether one of `others` has a quorum. Waits without a limit for controllers that do not answer."""
    loop = asyncio.get_running_loop()
    pause, logged_at = _PAUSE_S, loop.time()
    missing = list(others)
    while True:
        epochs = await asyncio.gather(*(_epoch_at(network, address) for address in missing))
        if any(epoch is not None and epoch > 0 for epoch in epochs):
            return True
        missing = [address for address, epoch in zip(missing, epochs, strict=True) if epoch is None]
        if not missing:
            return False
        if loop.time() - logged_at >= _REPEAT_S:
            logged_at = loop.time()
            names = ", ".join(f"{host}:{port}" for host, port in missing)
            log.warning("waiting for the other controllers, which may have a quorum", not_reached=names)
        await asyncio.sleep(pause)
        pause = min(pause * 2, _PAUSE_MAX_S)


async def _epoch_at(network: NetworkChannel, address: Address) -> int | None:
    """The epoch of a controller, 0 if it has none; None if it does not answer.

    The request is a Fetch with epoch 0, which changes no state; its response has the current epoch.
    """
    request = FetchRequest(ReplicaKey(NO_NODE), 0, 0, 0)
    try:
        response = await network.send(NO_NODE, (RaftEndpoint(LISTENER, *address),), request)
    except (KafkaError, OSError, TimeoutError) as error:
        if isinstance(error, KafkaError) and error.code is ErrorCode.UNSUPPORTED_VERSION:
            return 0
        log.debug("a controller did not return its epoch", address=f"{address[0]}:{address[1]}", reason=str(error))
        return None
    assert isinstance(response, FetchResponse)
    return response.epoch if response.epoch >= 0 else None
