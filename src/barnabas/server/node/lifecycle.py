"""Shell: registers a broker with the controller, sends heartbeats, and performs the controlled shutdown.

    STARTING ──registered──► RECOVERY ──unfenced──► RUNNING ──shut_down──► PENDING_CONTROLLED_SHUTDOWN ──► SHUTTING_DOWN
        └ caught up with the metadata log       └ fenced after missing heartbeats; the next heartbeat requests unfencing

The states are those of Kafka's `BrokerLifecycleManager`. A heartbeat is sent every `broker.heartbeat.interval.ms`, and
at once when this node

- becomes ready, starts to shut down, or loses a log directory;
- reads in the metadata log that another broker shuts down (that broker waits until all brokers have reported this
  metadata offset);
- loses its connection to the controller, learns of a new active controller, or reads that it was fenced: a controller
  fences a broker early if it takes the broker's process for dead (`metadata/failure_detector.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final, Protocol
from uuid import UUID

from msgspec import Struct

from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError, error_code
from barnabas.core.rng import Rng, random_uuid
from barnabas.core.telemetry import get_logger
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.metadata.features import SUPPORTED_FEATURES, unsupported_levels
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.image.nodes import SecurityProtocol
from barnabas.server.node.setup.identity import Identity

log = get_logger("barnabas.server.broker")

REGISTRATION_VERSION: Final = 4
HEARTBEAT_VERSION: Final = 2
_SOON_S: Final = 0.01
"""While the controller has not granted a request, the pause between heartbeats starts at twice this value, and doubles
up to `broker.heartbeat.interval.ms`."""
_RETRY_MAX_S: Final = 1.0
_WAITING_LOG_S: Final = 5.0
_SILENCE_CHECK_S: Final = 1.0


class BrokerState(Enum):
    """Names and numbers of Kafka's `BrokerState`."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class RegisteredDirectory(Protocol):
    """The properties of a log directory that are sent to the controller. `LogDir` of the storage package has them."""

    @property
    def directory_id(self) -> UUID: ...

    @property
    def failure(self) -> BaseException | None: ...

    @property
    def previous_broker_epoch(self) -> int: ...


class LifecycleConfig(Struct, frozen=True):
    """The configs of registration, heartbeats and controlled shutdown."""

    broker_heartbeat_interval_ms: int
    broker_session_timeout_ms: int
    initial_broker_registration_timeout_ms: int
    controlled_shutdown_enable: bool
    controlled_shutdown_timeout_ms: int = 30_000
    """The longest a controlled shutdown may take. Not a config; Kafka waits for five minutes."""


class RegistrationError(BarnabasError):
    """The cluster rejected this broker's registration. The message has the reason and what to do."""


class BrokerLifecycle:
    """The order of calls: `register`, then `run` in a task, `wait_unfenced`, and at the end `shut_down`."""

    def __init__(
        self,
        channel: ControllerChannel,
        identity: Identity,
        endpoints: Sequence[ListenerEndpoint],
        rack: str | None,
        dirs: Sequence[RegisteredDirectory],
        metadata_offset: Callable[[], int],
        rng: Rng,
        config: LifecycleConfig,
        *,
        on_epoch: Callable[[int], None] = lambda _: None,
        feature_levels: Callable[[], Mapping[str, int]] = dict,
        on_silence: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """`metadata_offset` returns the last offset of the metadata log that this node has read. `on_epoch` is called
        with the broker epoch after each registration. `feature_levels` returns the finalized levels in this node's
        image; with them the reason of a refused registration is more precise. `on_silence` is called with True when no
        controller has answered for so long that one that runs has fenced this broker, and again every
        `_SILENCE_CHECK_S` while that is so; with False when one has answered again."""
        self._channel = channel
        self._identity = identity
        self._endpoints = endpoints
        self._rack = rack
        self._dirs = dirs
        self._metadata_offset = metadata_offset
        self._rng = rng
        self._config = config
        self._on_epoch = on_epoch
        self._feature_levels = feature_levels
        self._on_silence = on_silence
        self._silence_s = (config.broker_session_timeout_ms + config.broker_heartbeat_interval_ms) / 1000
        """A heartbeat that was sent within the interval after the last response may have arrived, and have prolonged
        the session of this broker, although its own response was lost."""
        self._silence: asyncio.TimerHandle | None = None
        self._is_silent = False
        self._incarnation_id = random_uuid(rng)
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        self.fenced = True
        self.answered_at = 0.0
        """The time of the active controller's last answer to a heartbeat (seconds of the loop's clock); 0 at first."""
        self._ready = False
        self._wake = asyncio.Event()
        self._unfenced = asyncio.Event()
        self._listed = asyncio.Event()
        """Set when this node's own image has this broker, with its current epoch, as unfenced."""
        self._may_stop = asyncio.Event()

    # ---- registration

    async def register(self) -> int:
        """Register this broker, which is then fenced, and return the broker epoch.

        Retries for `initial.broker.registration.timeout.ms` at most. Raises RegistrationError.
        """
        self.state = BrokerState.STARTING
        timeout_ms = self._config.initial_broker_registration_timeout_ms
        reason = "no response from a controller"
        pause = 0.1
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    problem = await self._try_register()
                    if problem is None:
                        break
                    if problem != reason:
                        reason = problem
                        log.warning("broker registration failed; retrying", reason=reason)
                    await asyncio.sleep(pause * (0.5 + self._rng.random() / 2))
                    pause = min(pause * 2, _RETRY_MAX_S)
        except TimeoutError:
            raise RegistrationError(
                f"This broker could not register within initial.broker.registration.timeout.ms={timeout_ms}: {reason}"
            ) from None
        return self.broker_epoch

    async def _try_register(self) -> str | None:
        """Try to register once. Returns the problem if a retry may succeed, else None. Raises RegistrationError."""
        try:
            response = await self._channel.call(self._registration(), REGISTRATION_VERSION)
        except KafkaError as error:
            return str(error)
        assert isinstance(response, BrokerRegistrationResponse)
        code = error_code(response.error_code)
        node_id, cluster_id = self._identity.node_id, self._identity.cluster_id
        match code:
            case ErrorCode.NONE:
                self.broker_epoch = response.broker_epoch
                self.state = BrokerState.RECOVERY
                self.fenced = True
                self._on_epoch(self.broker_epoch)
                log.info("registered", broker=node_id, epoch=self.broker_epoch)
                return None
            case ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                return (
                    f"Another process is registered as broker {node_id} and its session has not expired. If that was "
                    "this broker before a crash, wait for the session to expire. If that process runs, change the "
                    "node.id of one of the two."
                )
            case ErrorCode.INCONSISTENT_CLUSTER_ID:
                raise RegistrationError(
                    f"The data directories belong to cluster {cluster_id}, the controller to another one: check "
                    "controller.quorum.voters (or bootstrap.servers), or start with an empty data directory."
                )
            case ErrorCode.UNSUPPORTED_VERSION:
                levels = "; ".join(unsupported_levels(self._feature_levels(), SUPPORTED_FEATURES))
                raise RegistrationError(
                    "This broker cannot join: the cluster uses feature levels that this version of Barnabas does not "
                    f"support{f' ({levels})' if levels else ''}. Upgrade this node, or lower the levels first with "
                    "`kafka-features --bootstrap-server HOST:PORT downgrade --feature NAME=LEVEL`."
                )
            case ErrorCode.INVALID_REGISTRATION:
                raise RegistrationError(
                    "The controller rejected this broker's listeners or log directories. Check that no two directories "
                    "have the same directory.id in meta.properties."
                )
            case _:
                return code.message

    def _registration(self) -> BrokerRegistrationRequest:
        epochs = {directory.previous_broker_epoch for directory in self._dirs}
        return BrokerRegistrationRequest(
            broker_id=self._identity.node_id,
            cluster_id=self._identity.cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(name=e.name, host=e.host, port=e.port, security_protocol=SecurityProtocol[e.security_protocol])
                for e in self._endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=levels.min_level, max_supported_version=levels.max_level)
                for name, levels in SUPPORTED_FEATURES.items()
            ],
            rack=self._rack,
            log_dirs=sorted(directory.directory_id for directory in self._dirs),
            # The broker epoch of the last clean shutdown if all directories have the same one; else -1, from which the
            # controller concludes that records may be missing (KIP-966).
            previous_broker_epoch=epochs.pop() if len(epochs) == 1 else -1,
        )

    # ---- notifications

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Subscribe this object last: the heartbeat reports the offset of an image that all subscribers must have."""
        listed = image.brokers.get(self._identity.node_id)
        if listed is not None and listed.epoch == self.broker_epoch and not listed.fenced:
            self._listed.set()
        me = delta.brokers.changed.get(self._identity.node_id)
        if (
            self.fenced
            or (me is not None and me.fenced)
            or any(broker is not None and broker.in_controlled_shutdown for broker in delta.brokers.changed.values())
        ):
            self._wake.set()

    def on_leader(self, leader_id: int, epoch: int) -> None:
        """Send a heartbeat to a new active controller at once: it does not know yet which brokers run."""
        if leader_id >= 0:
            self._wake.set()

    def on_connection_lost(self) -> None:
        """Send a heartbeat at once, so that the controller does not take this broker for dead."""
        self._wake.set()

    def on_directory_failed(self) -> None:
        """Send a heartbeat at once, so that the controller elects leaders for the partitions of the directory."""
        self._wake.set()

    async def wait_unfenced(self) -> None:
        """Request unfencing in the next heartbeats. Wait until the controller has unfenced this broker, and until this
        node has read the record that says so.

        Before that, this broker's Metadata responses would not contain this broker. A client that has learned of it
        from another broker would forget it again; librdkafka then fails the requests that wait for its answer.
        """
        self._ready = True
        self._wake.set()
        await self._wait_for(self._unfenced, "waiting for the controller to unfence this broker")
        await self._wait_for(
            self._listed, "waiting until this node has read the metadata record that unfences its broker"
        )

    async def _wait_for(self, event: asyncio.Event, waiting: str) -> None:
        """Wait for the event, and log `waiting` every few seconds."""
        loop = asyncio.get_running_loop()
        while not event.is_set():
            try:
                async with asyncio.timeout_at(loop.time() + _WAITING_LOG_S):
                    await event.wait()
            except TimeoutError:
                log.info(waiting, epoch=self.broker_epoch, offset=self._metadata_offset())

    async def shut_down(self, timeout_ms: int | None = None) -> bool:
        """Controlled shutdown: wait until the controller has moved this broker's leaderships to other brokers.

        `run` must be running. Returns False after a timeout (then leaderships move when the broker session expires),
        and at once if the broker is not registered or controlled.shutdown.enable is false.
        """
        if self.state not in (BrokerState.RECOVERY, BrokerState.RUNNING) or not self._config.controlled_shutdown_enable:
            return False
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._wake.set()
        limit_ms = self._config.controlled_shutdown_timeout_ms if timeout_ms is None else timeout_ms
        log.info("controlled shutdown: moving leaderships to other brokers", timeout_ms=limit_ms)
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await self._may_stop.wait()
        except TimeoutError:
            log.warning("controlled shutdown timed out: leaderships move when the broker session expires")
            return False
        finally:
            self.state = BrokerState.SHUTTING_DOWN
        log.info("controlled shutdown complete", epoch=self.broker_epoch)
        return True

    # ---- heartbeats

    async def run(self) -> None:
        """Send heartbeats until cancelled or until the controller allows the shutdown.

        A heartbeat after that would request unfencing, and this broker could become a leader again.
        """
        try:
            await self._run()
        finally:
            if self._silence is not None:
                self._silence.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pause = _SOON_S
        interval = self._config.broker_heartbeat_interval_ms / 1000
        while self.state is not BrokerState.SHUTTING_DOWN:
            self._wake.clear()
            began = loop.time()
            settled = await self._send_heartbeat()
            if self._may_stop.is_set():
                return
            pause = _SOON_S if settled else min(pause * 2, interval)
            try:
                async with asyncio.timeout_at(began + (interval if settled else pause)):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _send_heartbeat(self) -> bool:
        """Send one heartbeat and handle its response. False if the next one is due before the usual interval."""
        leaving = self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        request = BrokerHeartbeatRequest(
            broker_id=self._identity.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=not self._ready,
            want_shut_down=leaving,
            offline_log_dirs=sorted(home.directory_id for home in self._dirs if home.failure is not None),
        )
        try:
            response = await self._channel.call(request, HEARTBEAT_VERSION)
        except KafkaError as error:
            log.warning("heartbeat failed", reason=str(error))
            return False
        assert isinstance(response, BrokerHeartbeatResponse)
        self._on_answered()
        code = error_code(response.error_code)
        if code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            return await self._register_again(leaving=leaving)
        if code is not ErrorCode.NONE:
            log.warning("the controller rejected a heartbeat", reason=code.message)
            return False
        if leaving:
            if response.should_shut_down:
                self._may_stop.set()
            return False
        self._on_fenced(response.is_fenced)
        return not (self._ready and response.is_fenced)

    def _on_answered(self) -> None:
        """The controller has answered a heartbeat, so that this broker is not fenced for the length of a session."""
        loop = asyncio.get_running_loop()
        self.answered_at = loop.time()
        if self._silence is not None:
            self._silence.cancel()
        if self._is_silent:
            self._is_silent = False
            log.info("a controller answers again", epoch=self.broker_epoch)
            self._on_silence(False)
        self._silence = loop.call_at(self.answered_at + self._silence_s, self._on_silent)

    def _on_silent(self) -> None:
        if not self._is_silent:
            self._is_silent = True
            log.warning(
                "no controller has answered for longer than broker.session.timeout.ms: this broker may be fenced, and "
                "rejects writes with acks=all to partitions whose followers do not fetch, either",
                epoch=self.broker_epoch,
                seconds=self._silence_s,
            )
        self._silence = asyncio.get_running_loop().call_later(_SILENCE_CHECK_S, self._on_silent)
        self._on_silence(True)

    async def _register_again(self, *, leaving: bool) -> bool:
        """Register again, after this broker was unregistered or another process has registered its id.

        Returns False if the next heartbeat is due before the usual interval.
        """
        if leaving:
            self._may_stop.set()  # an unregistered broker has no leaderships to move
            return True
        log.warning("this broker is not registered any more: registering again", epoch=self.broker_epoch)
        self._unfenced.clear()
        self._listed.clear()
        self.fenced = True
        try:
            problem = await self._try_register()
        except RegistrationError as error:
            problem = str(error)
        if problem is not None:
            log.error("registration failed: this broker stays fenced", reason=problem)
        return False

    def _on_fenced(self, fenced: bool) -> None:
        if fenced == self.fenced:
            return
        self.fenced = fenced
        if fenced:
            log.warning(
                "fenced: the controller received no heartbeat of this broker within its session timeout, or took this "
                "process for dead; requesting to be unfenced",
                epoch=self.broker_epoch,
            )
            return
        self.state = BrokerState.RUNNING
        self._unfenced.set()
        log.info("unfenced: this broker can lead partitions and serve clients", epoch=self.broker_epoch)
