"""Shell: registers a controller's listeners and supported features with the active controller (KIP-919).

    the image has no registration of this process ──► ControllerRegistration request to the active controller
                                                        └ rejected, or no response: retry with a growing pause

Every image is checked (as by Kafka's `ControllerRegistrationManager`), so a registration that an unclean election lost
is made again. Admin clients that connect to controllers find the controllers' addresses in the registrations, and a
feature level is raised only if every registered controller supports the level.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.rng import Rng, random_uuid
from barnabas.core.telemetry import get_logger
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.metadata.features import CONTROLLER_REGISTRATION_LEVEL, SUPPORTED_FEATURES
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.image.nodes import SecurityProtocol

log = get_logger("barnabas.controller")

REGISTRATION_VERSION: Final = 0
_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 10.0


class ControllerRegistration:
    """Subscribe the object to the images, and call `run`."""

    def __init__(
        self, channel: ControllerChannel, node_id: int, endpoints: Sequence[ListenerEndpoint], rng: Rng
    ) -> None:
        """`endpoints` are the controller's advertised listeners."""
        self._channel = channel
        self._node_id = node_id
        self._endpoints = endpoints
        self._rng = rng
        self._incarnation_id = random_uuid(rng)
        self._missing = asyncio.Event()
        """Set while the newest image has no registration of this process."""

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        registered = image.brokers.controllers.get(self._node_id)
        known = registered is not None and registered.incarnation_id == self._incarnation_id
        if known or image.features.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
            self._missing.clear()
        else:
            self._missing.set()

    async def run(self) -> None:
        """Register, and register again when necessary, until cancelled."""
        pause = _PAUSE_S
        while True:
            if not self._missing.is_set():
                pause = _PAUSE_S
            await self._missing.wait()
            problem = await self._try_register()
            if problem is not None:
                log.warning("controller registration failed; retrying", reason=problem, after_s=pause)
            # After success too, wait before the next check: the image with the registration arrives soon.
            await asyncio.sleep(pause * (0.5 + self._rng.random() / 2))
            pause = min(pause * 2, _PAUSE_MAX_S)

    async def _try_register(self) -> str | None:
        """Try to register once. Returns the reason of a failure, None after success."""
        try:
            response = await self._channel.call(self._request(), REGISTRATION_VERSION)
        except KafkaError as error:
            return str(error)
        assert isinstance(response, ControllerRegistrationResponse)
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            return response.error_message or code.message
        log.info("registered as a controller", controller=self._node_id)
        return None

    def _request(self) -> ControllerRegistrationRequest:
        return ControllerRegistrationRequest(
            controller_id=self._node_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(name=e.name, host=e.host, port=e.port, security_protocol=SecurityProtocol[e.security_protocol])
                for e in self._endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=levels.min_level, max_supported_version=levels.max_level)
                for name, levels in SUPPORTED_FEATURES.items()
            ],
        )
