"""Machine: what the clients of a node use per second, by client id, address, principal and partition.

    connection -- Usage (exact) --+-- once a second, or at 1,000 connections --> Table by client id
                                  |                                              Table by address
                                  |                                              Table by principal
                                  +-- for each partition --------------------->  Table by partition
                                                                                 Table by partition and client

A connection adds to its `Usage`, which costs no call. `ClientUsage.collect` moves these numbers into tables of bounded
size. A table that is full moves its least active entries into one entry for all others, so that invented client ids
displace each other and not the clients that matter: an entry with more than about a thousandth of what all clients use
is never displaced. A new key that is hardly more active than those displaced in the last second is counted with all
others, so that thousands of equally active keys do not sort the table again and again. Client ids can be invented,
addresses and principals cannot, which is why each has a table of its own.

A rate is an average over about the last `WINDOW_S` seconds in which recent seconds count more (an exponentially decayed
sum). It is computed when it is read, so an idle client costs nothing.

Times are seconds of the event loop's clock, and are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Final, Generic, TypeVar

from msgspec import Struct

from barnabas.core.addresses import address_group
from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import Counter
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.transport.ports import Peer, Usage
from barnabas.protocol.wire.messages.describe_clients import ClientView, activity
from barnabas.server.broker.client_usage.series import NOTHING, Amounts, Series, added

WINDOW_S: Final = 10.0
"""The time constant of the decayed sums."""
TICK_S: Final = 1.0
"""Connections are counted at least this often while requests arrive."""
PENDING_MAX: Final = 1_000
"""Connections, and partitions of connections, that are counted at once: a few milliseconds of work."""
IDLE_S: Final = 60.0
"""An entry without use for so long is forgotten: its decayed sums are 0.2 % of what they were."""
NAMES_MAX: Final = 1_000
"""Client ids, addresses, principals and partitions with an entry, of each kind."""
PARTITION_CLIENTS_MAX: Final = 2_000
"""Entries of a client in a partition."""
NAME_LENGTH_MAX: Final = 100
NOT_PENDING: Final = -1.0
"""`Usage.due` of a connection that has used nothing since it was counted."""
NO_NAME: Final = "(none)"
"""Stands for an empty client id."""
_MORE_ACTIVE: Final = 2.0
"""A new key displaces others more than once a tick only if it is so many times as active as those."""

_Client = tuple[str | None, str, KafkaPrincipal]
"""A client id, an address, a principal."""


class PartitionClient(Struct, frozen=True):
    """A client that writes to a partition or reads from it."""

    client_id: str
    address: str
    principal: str
    partition: TopicPartition


K = TypeVar("K", bound=Hashable)


class UsageEntry(Generic[K]):
    """The decayed sums of one key."""

    __slots__ = ("at", "key", "producer_id", "since", "sums")

    def __init__(self, key: K | None, since: float) -> None:
        self.key = key
        """The key of the entry; None for the entry of all others."""
        self.since = self.at = since
        """The time at which the sums were 0, and the time for which they hold."""
        self.sums: Amounts = NOTHING
        self.producer_id = -1

    def add(self, amounts: Amounts, at: float) -> None:
        """Add what was used at this time."""
        if at > self.at:
            factor = math.exp((self.at - at) / WINDOW_S)
            a, b, c, d, e = self.sums
            self.sums = (a * factor, b * factor, c * factor, d * factor, e * factor)
            self.at = at
        self.sums = added(self.sums, amounts)

    def weight(self, now: float) -> float:
        """How active the key is, as a number that orders entries."""
        return weight_of(self.sums) * math.exp(min((self.at - now) / WINDOW_S, 0.0))

    def rates(self, now: float) -> Amounts:
        """The amounts per second. Correct from the first second on: a sum that has grown for a short time is compared
        with a window of that time."""
        age = max(now - self.since, TICK_S)
        scale = math.exp(min((self.at - now) / WINDOW_S, 0.0)) / (WINDOW_S * -math.expm1(-age / WINDOW_S))
        a, b, c, d, e = self.sums
        return (a * scale, b * scale, c * scale, d * scale, e * scale)


class UsageTable(Generic[K]):
    """The most active keys, and one entry for all others."""

    def __init__(self, entries_max: int, now: float = 0.0) -> None:
        self.others: UsageEntry[K] = UsageEntry(None, now)
        self._entries: dict[K, UsageEntry[K]] = {}
        self._entries_max = entries_max
        self._displaced_at = -math.inf
        self._enough = 0.0
        """The weight above which a new key causes another displacement within a tick of the latest one."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, key: K, amounts: Amounts, since: float, at: float) -> UsageEntry[K]:
        """Add what a key has used between two times. Returns the key's entry, or that of all others."""
        entry = self._entries.get(key)
        if entry is None:
            if len(self._entries) >= self._entries_max:
                if at - self._displaced_at < TICK_S and weight_of(amounts) <= self._enough:
                    # Otherwise thousands of keys, each about as active as the others, would displace each other, and
                    # the table would be sorted many times a second.
                    self.others.add(amounts, at)
                    return self.others
                self._displace(at)
            entry = self._entries[key] = UsageEntry(key, since)
        entry.add(amounts, at)
        return entry

    def get(self, key: K) -> UsageEntry[K] | None:
        """The entry of a key."""
        return self._entries.get(key)

    def most_active(self, now: float) -> list[UsageEntry[K]]:
        """The entries that were active in the last minute, the most active ones first."""
        for entry in [entry for entry in self._entries.values() if now - entry.at > IDLE_S]:
            self._move_to_others(entry, now)
        return sorted(self._entries.values(), key=lambda entry: -entry.weight(now))

    def _displace(self, now: float) -> None:
        """Make room: move the least active eighth into the entry of all others."""
        entries = sorted(self._entries.values(), key=lambda entry: entry.weight(now))
        entries = entries[: max(self._entries_max // 8, 1)]
        self._displaced_at, self._enough = now, _MORE_ACTIVE * entries[-1].weight(now)
        for entry in entries:
            self._move_to_others(entry, now)

    def _move_to_others(self, entry: UsageEntry[K], now: float) -> None:
        assert entry.key is not None
        del self._entries[entry.key]
        entry.add(NOTHING, max(now, self.others.at))
        self.others.add(entry.sums, entry.at)


class ClientUsage:
    """The tables of one node. Implements `ClientMeter`."""

    def __init__(
        self,
        *,
        names_max: int = NAMES_MAX,
        partition_clients_max: int = PARTITION_CLIENTS_MAX,
        pending_max: int = PENDING_MAX,
    ) -> None:
        self.by_client_id: UsageTable[str] = UsageTable(names_max)
        self.by_address: UsageTable[str] = UsageTable(names_max)
        self.by_principal: UsageTable[str] = UsageTable(names_max)
        self.by_partition: UsageTable[TopicPartition] = UsageTable(names_max)
        self.by_partition_client: UsageTable[PartitionClient] = UsageTable(partition_clients_max)
        self.series: dict[ClientView, Series] = {
            view: Series() for view in ClientView if view is not ClientView.PARTITION_CLIENT
        }
        """What Prometheus reads."""
        self._pending_max = pending_max
        self._pending: list[Peer] = []
        """The connections that have used something since the last `collect`."""
        self._pending_partitions = 0
        self._latest = 0.0
        """The latest known time."""
        self._began = 0.0
        self._due = NOT_PENDING

    def new_usage(self, received: Counter | None = None, sent: Counter | None = None) -> Usage:
        """The numbers of a new connection of the listener whose bytes these counters count."""
        usage = Usage(self._on_partition, received, sent)
        usage.due = NOT_PENDING
        return usage

    def table(self, view: ClientView) -> UsageTable[str] | UsageTable[TopicPartition] | UsageTable[PartitionClient]:
        """The table of this view."""
        match view:
            case ClientView.CLIENT_ID:
                return self.by_client_id
            case ClientView.ADDRESS:
                return self.by_address
            case ClientView.PRINCIPAL:
                return self.by_principal
            case ClientView.PARTITION:
                return self.by_partition
            case ClientView.PARTITION_CLIENT:
                return self.by_partition_client

    def on_due(self, peer: Peer, now: float) -> None:
        """A connection whose numbers are not pending uses something, or the time of the pending ones is over."""
        self._latest = now
        if self._pending and (now >= self._due or len(self._pending) >= self._pending_max):
            self.collect(now)
        if not self._pending:
            self._began, self._due = now, now + TICK_S
        peer.usage.due = self._due
        self._pending.append(peer)

    def on_client_id(self, peer: Peer, client_id: str | None, now: float) -> None:
        """The requests of a connection have another client id from now on. What had none, such as the handshake, is the
        new one's."""
        if peer.usage.client_id is not None and peer.usage.requests:
            self._count([peer], max(self._began, now - TICK_S), now)
        peer.usage.client_id = client_id

    def on_closed(self, peer: Peer, now: float) -> None:
        """The connection has ended."""
        if peer.usage.due == NOT_PENDING:
            self.on_due(peer, now)

    def collect(self, now: float) -> None:
        """Move the numbers of the pending connections into the tables."""
        self._latest = now
        pending, self._pending = self._pending, []
        # No connection has used anything after the tick in which the first one did: this would have been called then.
        self._count(pending, self._began, min(now, self._began + TICK_S))
        self._pending_partitions = 0
        for peer in pending:
            peer.usage.due = NOT_PENDING

    def _on_partition(self, peer: Peer) -> None:
        if self._pending_partitions >= self._pending_max:
            self.collect(self._latest)
        if peer.usage.due == NOT_PENDING:  # counted since its request arrived, which has waited for records
            self.on_due(peer, self._latest)
        self._pending_partitions += 1

    def _count(self, peers: Sequence[Peer], since: float, at: float) -> None:
        sums: dict[_Client, Amounts] = {}
        of_partitions: dict[_Client, list[Peer]] = {}
        for peer in peers:
            usage = peer.usage
            key = (usage.client_id, peer.host, peer.principal)
            a, b, c, d, e = sums.get(key, NOTHING)
            sums[key] = (a + usage.bytes_in, b + usage.bytes_out, c + usage.requests, d + usage.seconds, e)
            usage.received.value += usage.bytes_in
            usage.sent.value += usage.bytes_out
            usage.bytes_in = usage.bytes_out = usage.requests = 0
            usage.seconds = 0.0
            if usage.partitions:
                of_partitions.setdefault(key, []).append(peer)
        for key, amounts in sums.items():
            client_id, host, principal = key
            names = clean(client_id), clean(address_group(host)), clean(str(principal))
            written = self._count_partitions(names, of_partitions.get(key, ()), since, at)
            amounts = (*amounts[:4], written)
            for view, table, name in (
                (ClientView.CLIENT_ID, self.by_client_id, names[0]),
                (ClientView.ADDRESS, self.by_address, names[1]),
                (ClientView.PRINCIPAL, self.by_principal, names[2]),
            ):
                table.add(name, amounts, since, at)
                self.series[view].add(name, amounts, at)

    def _count_partitions(self, names: tuple[str, str, str], peers: Iterable[Peer], since: float, at: float) -> float:
        """Count what one client has written and read, by partition. Returns the records that it has written."""
        records = 0.0
        series = self.series[ClientView.PARTITION]
        for peer in peers:
            for partition, used in peer.usage.partitions.items():
                amounts = (float(used.bytes_in), float(used.bytes_out), 0.0, 0.0, float(used.records_in))
                records += used.records_in
                name = partition.name
                self.by_partition.add(name, amounts, since, at)
                series.add(name, amounts, at)
                entry = self.by_partition_client.add(PartitionClient(*names, name), amounts, since, at)
                if used.producer_id >= 0 and entry.key is not None:
                    entry.producer_id = used.producer_id
            peer.usage.partitions.clear()
        return records


def weight_of(amounts: Amounts) -> float:
    """How much a client with these amounts matters, as a number that orders clients: the time of the event loop, and
    the time for which its bytes stand."""
    return activity(amounts[3], amounts[0], amounts[1])


def clean(name: str | None) -> str:
    """A name for people, of what a client has sent: without control characters, which could change a terminal, and not
    longer than a line."""
    if not name:
        return NO_NAME
    if len(name) > NAME_LENGTH_MAX:
        name = name[: NAME_LENGTH_MAX - 3] + "..."
    return name if name.isprintable() else "".join(c if c.isprintable() else "?" for c in name)
