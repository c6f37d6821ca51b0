"""Shell: connects to the registered addresses of a broker, to find out whether its process has ended; implements
`BrokerProber` of the metadata package."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from barnabas.server.metadata.controller.suspicions import ProbeOutcome

_TIMEOUT_S: Final = 1.0
"""The longest wait for an answer. An address that does not answer in this time is silent."""


class BrokerConnector:
    """Opens a connection to each address at the same time, without a request, and closes it at once."""

    async def probe(self, addresses: Sequence[tuple[str, int]]) -> ProbeOutcome:
        """ACCEPTED if any address accepts the connection; REFUSED if all refuse it; else SILENT, also if this node
        has no descriptor for a connection or cannot resolve a name."""
        async with asyncio.TaskGroup() as tasks:
            attempts = [tasks.create_task(_connect(host, port)) for host, port in addresses]
        outcomes = [attempt.result() for attempt in attempts]
        if ProbeOutcome.ACCEPTED in outcomes:
            return ProbeOutcome.ACCEPTED
        all_refused = bool(outcomes) and all(outcome is ProbeOutcome.REFUSED for outcome in outcomes)
        return ProbeOutcome.REFUSED if all_refused else ProbeOutcome.SILENT


async def _connect(host: str, port: int) -> ProbeOutcome:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
    except ConnectionRefusedError:
        return ProbeOutcome.REFUSED
    except OSError:  # TimeoutError and the errors of the name service are OSErrors
        return ProbeOutcome.SILENT
    transport.close()
    return ProbeOutcome.ACCEPTED
