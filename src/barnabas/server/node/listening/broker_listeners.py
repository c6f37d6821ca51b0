"""Shell: the listeners of a broker for its clients: opened at the start, added, removed and given other certificates
while the broker runs.

The broker checks a change when an administrator requests it (`check`), and carries it out when the change is in the
metadata log. A change that cannot be carried out (its port is taken, a file has changed meanwhile) is logged as an
error, and the listeners stay as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.core.errors import BarnabasError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.transport.connection_quotas import ConnectionQuotas
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.listener import Listener
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.node.config import NodeConfig
from barnabas.server.node.listening.changes import ListenerPlan, plan_listeners
from barnabas.server.node.parts import Parts
from barnabas.server.node.setup.ports_taken import TakenPort, take_ports

if TYPE_CHECKING:
    from barnabas.protocol.transport.listener_security import ListenerSecurity
    from barnabas.protocol.transport.tls_server import TlsServerConfig

log = get_logger("barnabas.server.node")

BuildListener = Callable[[TakenPort, "ListenerSecurity | None"], Listener]


class BrokerListeners:
    """The order of calls: `open` for the early listeners and for the others, `follow_configs`, `stop`."""

    def __init__(
        self,
        parts: Parts,
        ports: Sequence[TakenPort],
        quotas: ConnectionQuotas,
        names: list[str],
        on_names: Callable[[ClusterImage], None],
    ) -> None:
        """`names` are those of the listeners, and change with them; `on_names` is called after a change."""
        self._parts = parts
        self._ports = ports
        self._quotas = quotas
        self._names = names
        self._on_names = on_names
        self._config = parts.config
        self._build: BuildListener | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._open: dict[str, Listener] = {}
        self._helpers: list[asyncio.Task[None]] = []
        """The task that follows the configs, and those that keep the keys of identity providers up to date."""
        self._security = dict(parts.security.listeners)
        self._wanted: Mapping[str, str] | None = None
        self._wake = asyncio.Event()

    # ---- the first listeners

    async def open(self, build: BuildListener, tasks: asyncio.TaskGroup, *, early: bool) -> None:
        """Open the listeners of the configuration file: those in `early.start.listeners`, or else the others."""
        self._build, self._tasks = build, tasks
        names = {name.strip().upper() for name in self._config["early.start.listeners"] or ()}
        chosen = [port for port in self._ports if (port.endpoint.name in names) == early]
        listeners = [build(port, self._security.get(port.endpoint.name)) for port in chosen]
        for listener in listeners:
            await listener.bind()
        for listener in listeners:
            self._serve(listener)
        if listeners:
            await asyncio.sleep(0)

    def follow_configs(self) -> None:
        """Change the listeners with the dynamic configs of this broker from now on."""
        assert self._tasks is not None, "the first listeners are open"
        self._helpers.append(self._tasks.create_task(self._follow_configs()))

    def stop(self) -> None:
        """Close all listeners."""
        for task in self._helpers:
            task.cancel()
        for listener in self._open.values():
            listener.stop()

    # ---- changes

    def check(self, dynamic: Mapping[str, str]) -> None:
        """Raises ConfigError if the listeners cannot have the dynamic configs `dynamic` of this broker."""
        plan = plan_listeners(self._parts.config, self._config, dynamic)
        for endpoint in plan.new_stores:
            acceptor = self._security[endpoint.name].tls
            assert acceptor is not None, "only listeners with TLS have stores"
            acceptor.check(self._tls(plan.config, endpoint), between_nodes=self._is_between_nodes(endpoint.name))
        for endpoint in plan.added:
            self._parts.build_security(plan.config, endpoint)

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        if delta.configs or self._wanted is None:
            wanted = image.configs.broker(self._parts.node_id)
            if wanted != self._wanted:
                self._wanted = dict(wanted)
                self._wake.set()

    async def _follow_configs(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            wanted = self._wanted
            assert wanted is not None
            try:
                self.check(wanted)
                await self._carry_out(plan_listeners(self._parts.config, self._config, wanted))
            except (BarnabasError, OSError) as error:
                log.error("a change of the listeners is refused; they stay as they are", reason=str(error))

    async def _carry_out(self, plan: ListenerPlan) -> None:
        if not plan:
            self._config = plan.config
            return
        added: list[Listener] = []
        try:
            for endpoint in plan.added:
                added.append(await self._opened(plan.config, endpoint))  # noqa: PERF401 - those opened are closed again
            for endpoint in plan.new_stores:
                self._replace_stores(plan.config, endpoint)
        except BaseException:
            for listener in added:
                listener.stop()
                self._forget(listener.name)
            raise
        for name in plan.removed:
            self._close(name)
        for listener in added:
            self._serve(listener)
            log.info("listener opened", listener=str(listener.endpoint))
        self._config = plan.config
        self._names[:] = [endpoint.name for endpoint in plan.config.listeners]
        self._on_names(self._parts.image)

    async def _opened(self, config: NodeConfig, endpoint: ListenerEndpoint) -> Listener:
        assert self._build is not None, "the first listeners are open"
        assert self._tasks is not None
        security, provider_keys = self._parts.build_security(config, endpoint)
        advertised = next((found for found in config.advertised if found.name == endpoint.name), endpoint)
        (port,) = take_ports(self._parts.listen_at, [endpoint], [advertised])
        for keys in provider_keys:
            await keys.start()
            self._helpers.append(self._tasks.create_task(keys.run()))
        if security is not None:
            self._security[endpoint.name] = security
        listener = self._build(port, security)
        await listener.bind()
        return listener

    def _serve(self, listener: Listener) -> None:
        assert self._tasks is not None
        self._open[listener.name] = listener
        self._tasks.create_task(self._run(listener), name=f"listener {listener.endpoint}")

    async def _run(self, listener: Listener) -> None:
        await listener.serve()
        self._forget(listener.name)

    def _close(self, name: str) -> None:
        listener = self._open.pop(name)
        listener.stop()
        log.info("listener closed", listener=str(listener.endpoint))

    def _forget(self, name: str) -> None:
        """Remove the state of a listener that is closed, unless there is another one with its name."""
        if name not in self._open:
            self._quotas.remove_listener(name)
            self._security.pop(name, None)
            self._parts.metrics.forget(listener=name)

    def _replace_stores(self, config: NodeConfig, endpoint: ListenerEndpoint) -> None:
        acceptor = self._security[endpoint.name].tls
        assert acceptor is not None, "only listeners with TLS have stores"
        acceptor.replace(self._tls(config, endpoint))
        log.info("key store or trust store replaced", listener=endpoint.name)
        from barnabas.server.node.setup.security_configs import security_to_brokers, security_to_controllers

        if endpoint.name == config.controller_listener[0]:
            self._parts.outgoing.replace_security(security_to_controllers(config))
        if endpoint.name == config.inter_broker_listener:
            self._parts.to_brokers.replace_security(security_to_brokers(config))

    def _is_between_nodes(self, name: str) -> bool:
        return name in (self._config.inter_broker_listener, self._config.controller_listener[0])

    def _tls(self, config: NodeConfig, endpoint: ListenerEndpoint) -> TlsServerConfig:
        from barnabas.server.node.setup.security_configs import tls_server_config

        return tls_server_config(config, endpoint)
