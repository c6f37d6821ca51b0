"""Machine: the rules for requests of clients that log in. They see each request that a listener passes to its handler.

The witness stands between a listener and its handler. So the rules do not depend on what the code of the listener
believes about its connections, except for the name of the user.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from barnabas.protocol.security.credentials import SCRAM_MECHANISMS
from barnabas.protocol.security.principals import ANONYMOUS
from barnabas.protocol.wire.apis import ApiKey
from barnabas.testing.sim.cluster.logins import MECHANISM, SESSION_MS
from barnabas.testing.sim.cluster.rule import Rule
from barnabas.testing.sim.cluster.view import image_of, listener_of

if TYPE_CHECKING:
    from barnabas.protocol.transport.ports import Answer, Finished, Peer, RequestHandler, RequestScheduling
    from barnabas.protocol.wire.server_conn import ReceivedRequest
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.cluster.observation import ClusterObservation

_CLIENTS: Final = "CLIENTS"
_SEEN_LATER_S: Final = 0.2
"""The cluster is observed twenty times a second, so the end of a user is known a little later."""
OnRequest = Callable[[str, "ReceivedRequest", "Peer"], None]


class Witness:
    """A request handler that reports each request before it passes the request on."""

    def __init__(self, handler: RequestHandler, host: str, on_request: OnRequest) -> None:
        self._handler = handler
        self._host = host
        self._on_request = on_request

    def scheduling(self, request: ReceivedRequest) -> RequestScheduling:
        return self._handler.scheduling(request)

    def begin(self, request: ReceivedRequest, peer: Peer) -> Finished[Answer] | Coroutine[Any, Any, Answer]:
        self._on_request(self._host, request, peer)
        return self._handler.begin(request, peer)

    def on_closed(self, peer: Peer) -> None:
        self._handler.on_closed(peer)


def witness(host: str, protocol: Any, on_request: OnRequest) -> None:
    """Report the requests of a connection that `host` has accepted, and of all others of the same listener."""
    listener = listener_of(protocol)
    if not isinstance(listener.handler, Witness):
        listener.handler = Witness(listener.handler, host, on_request)


class SessionRule(Rule):
    """A rule that sees each request. A violation is raised at the next observation, because a connection of the node
    would log an exception of its handler and go on."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self.violation = ""

    def observe(self, seen: ClusterObservation) -> None:
        if self.violation:
            self.broken(self.violation)

    def on_request(self, host: str, request: ReceivedRequest, peer: Peer) -> None:
        """Called before the request is handled."""


class OnlyUsersAreServed(SessionRule):
    """No request but ApiVersions is handled for a client that has not authenticated."""

    def on_request(self, host: str, request: ReceivedRequest, peer: Peer) -> None:
        key = request.header.api_key
        if peer.principal == ANONYMOUS and key != ApiKey.API_VERSIONS:
            self.violation = f"{host} handles {ApiKey(key).name} of {peer}, which has not authenticated"


class RemovedUsersAreNotServed(SessionRule):
    """A broker that knows of the end of a user serves the user no longer than to the end of its session."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._users: set[str] = set()
        """All users that have ever had a credential."""
        self._absent: dict[tuple[str, object, str], float] = {}
        """By host, process and user: the time since which the image of the host does not have the user."""

    def observe(self, seen: ClusterObservation) -> None:
        super().observe(seen)
        now = self.cluster.world.loop.time()
        mechanism = SCRAM_MECHANISMS[MECHANISM]
        present: dict[tuple[str, object], set[str]] = {}
        for node, image in self.cluster.images():
            names = {name for number, name in image.scram.credentials if number == mechanism}
            present[node.name, node.process] = names
            self._users |= names
        absent: dict[tuple[str, object, str], float] = {}
        for (host, process), names in present.items():
            for user in self._users - names:
                absent[host, process, user] = self._absent.get((host, process, user), now)
        self._absent = absent

    def on_request(self, host: str, request: ReceivedRequest, peer: Peer) -> None:
        if peer.listener != _CLIENTS or peer.principal == ANONYMOUS:
            return
        node = self.cluster.hosts[host]
        image = image_of(node)
        user = peer.principal.name
        since = self._absent.get((host, node.process, user))
        if since is None or image is None or image.scram.get(SCRAM_MECHANISMS[MECHANISM], user) is not None:
            return
        longest_s = SESSION_MS / 1000 + _SEEN_LATER_S
        passed_s = self.cluster.world.loop.time() - since
        if passed_s > longest_s:
            self.violation = (
                f"{host} handles {ApiKey(request.header.api_key).name} of {user!r} {passed_s:.3f} s after the end of"
                f" this user, and its sessions last {SESSION_MS} ms"
            )


SESSION_RULES: tuple[type[SessionRule], ...] = (OnlyUsersAreServed, RemovedUsersAreNotServed)
