"""Machine: what one principal and one address may have of a total, so that invented clients do not displace others."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from barnabas.core.addresses import address_group
from barnabas.server.broker.client_metrics.subscriptions import ClientAttributes


class Bounds(Struct, frozen=True):
    """The most of something that all clients may have, those of one principal, and those of one address."""

    total: int
    of_principal: int
    of_address: int


class ClientShares:
    """What clients have, counted by their principals and addresses."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.total = 0
        self._of_principal: Counter[str] = Counter()
        self._of_address: Counter[str] = Counter()

    def add(self, client: ClientAttributes, count: int) -> None:
        """Count what a client gets; a negative number is what it gives back."""
        self.total += count
        for counts, key in ((self._of_principal, client.principal), (self._of_address, _address(client))):
            counts[key] += count
            if not counts[key]:
                del counts[key]

    def room(self, client: ClientAttributes) -> int:
        """How much more the client may have."""
        return min(self.bounds.total - self.total, self.room_of_owner(client))

    def room_of_owner(self, client: ClientAttributes) -> int:
        """How much more the principal and the address of the client may have, whatever others have."""
        return min(self._room_of_principal(client), self._room_of_address(client))

    def gives_way(self, other: ClientAttributes, client: ClientAttributes) -> bool:
        """Whether `other` is of the principal, or of the address, that has no room for `client`."""
        if self._room_of_address(client) <= 0:
            return _address(other) == _address(client)
        return other.principal == client.principal

    def _room_of_principal(self, client: ClientAttributes) -> int:
        return self.bounds.of_principal - self._of_principal[client.principal]

    def _room_of_address(self, client: ClientAttributes) -> int:
        return self.bounds.of_address - self._of_address[_address(client)]


def _address(client: ClientAttributes) -> str:
    return address_group(client.client_source_address)
