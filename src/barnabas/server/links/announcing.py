"""Shell: announces that the definition of a link has changed, so that every broker reads it now.

A broker that does not get the announcement reads the definition at its next refresh of the source's metadata.
"""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.core.errors import KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.wire.messages.alter_link import AlterLinkRequest, LinkData
from barnabas.server.links.coordination.mirror_commands import LinkOperation
from barnabas.server.links.router import raise_error
from barnabas.server.peers.peer_router import PeerRouter

log = get_logger("barnabas.server.links")

_TRIES: Final = 3
_PAUSE_S: Final = 1.0


class Announcer:
    """Announces changes of links to the other brokers."""

    def __init__(self, router: PeerRouter) -> None:
        self._router = router

    async def announce(self, link: str) -> None:
        """Returns when each active broker has been told, or has not answered three times."""
        others = [
            broker.broker_id
            for broker in self._router.local.metadata.image.brokers
            if not broker.fenced and not self._router.is_local(broker.broker_id)
        ]
        await asyncio.gather(*(self._announce_to(broker_id, link) for broker_id in others))

    async def _announce_to(self, broker_id: int, link: str) -> None:
        for number in range(_TRIES):
            request = AlterLinkRequest(operation=LinkOperation.ANNOUNCE, only_local=True, link=LinkData(name=link))
            try:
                raise_error(await self._router.send(broker_id, request, "links"))
                return
            except KafkaError as error:
                log.info("a changed link could not be announced", broker=broker_id, link=link, reason=str(error))
            if number + 1 < _TRIES:
                await asyncio.sleep(_PAUSE_S)
