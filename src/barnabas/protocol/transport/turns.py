"""Machine: whose waiting requests start next, when more requests wait than one turn of the event loop may start.

    node ─┬─ listener ─┬─ client ─┬─ connection       a client is a principal, or without one an address
          │            │          └─ connection
          │            └─ client ─── connection
          └─ listener ...

Every share of this tree counts what its requests have cost. The next request is one of the waiting listener that has
cost least, of its waiting client that has cost least, and so on (start-time fair queueing). A share that begins to wait
is not paid for the time in which it had nothing to do: its cost begins at that of the share that was served last. So a
client that comes new waits for one slice of the work of others, however many requests or connections they have, and
a client with a hundred connections gets no more than one with a single connection.

A client that sends a little and waits for the answer should not stand behind those that always have more, although it
may have used more than an equal share of many. So each time that a share begins to wait, it is let off `grace` of what
it has cost. A connection that uses no more than `grace` at a time waits for at most one slice of each other connection
of its client.

The cost is an argument: measured seconds in production, counted units in the simulator.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Final

IDLE_CLIENTS_MAX: Final = 10_000
"""More idle clients than these are forgotten: at first those whose debts are paid."""


class Share:
    """A node, listener, client or connection, and what its requests have cost."""

    __slots__ = ("children", "is_waiting", "owner", "parent", "served_at", "spent", "waiting")

    def __init__(self, parent: Share | None, owner: object = None) -> None:
        self.parent = parent
        self.owner = owner
        """The connection; None for the other shares."""
        self.spent = 0.0
        self.is_waiting = False
        self.waiting: list[tuple[float, int, Share]] = []
        """The heap of the children that wait: (what they have spent, number of the entry, child)."""
        self.served_at = 0.0
        """What the child that was served last had spent before."""
        self.children: dict[str, Share] = {}


NO_SHARE: Final = Share(None)
"""The share of a connection that has never waited."""


class Turns:
    """The shares of one node's listeners."""

    def __init__(self, grace: float = 0.0) -> None:
        self._root = Share(None)
        self._grace = grace
        self._numbers = count()

    def __bool__(self) -> bool:
        """Whether any connection waits."""
        return bool(self._root.waiting)

    def client(self, listener: str, client: str) -> Share:
        """The share of a client."""
        return self._child(self._child(self._root, listener), client)

    def share(self, listener: str, client: str, connection: object) -> Share:
        """The share of a connection. A connection that authenticates as another client needs a new one."""
        return Share(self.client(listener, client), connection)

    def _child(self, parent: Share, name: str) -> Share:
        found = parent.children.get(name)
        if found is None:
            if len(parent.children) >= IDLE_CLIENTS_MAX:
                self._forget_idle(parent)
            found = parent.children[name] = Share(parent)
        return found

    @staticmethod
    def _forget_idle(parent: Share) -> None:
        idle = {name: child for name, child in parent.children.items() if not child.is_waiting}
        paid = [name for name, child in idle.items() if child.spent <= parent.served_at]
        for name in paid or idle:
            del parent.children[name]

    def enter(self, share: Share) -> None:
        """The connection of this share waits from now on. Does nothing if it waits already."""
        while share.parent is not None and not share.is_waiting:
            parent = share.parent
            share.is_waiting = True
            share.spent = max(share.spent - self._grace, parent.served_at)
            heappush(parent.waiting, (share.spent, next(self._numbers), share))
            share = parent

    def next(self) -> Share:
        """The share of the connection that is served next; call `charge` with it. One must be waiting."""
        share = self._root
        while share.waiting:
            spent, _, first = share.waiting[0]
            if spent < first.spent:  # `add` has charged it since
                heapreplace(share.waiting, (first.spent, next(self._numbers), first))
                continue
            share.served_at = spent
            share = first
        return share

    def add(self, share: Share, cost: float) -> None:
        """The connection of this share has used so much outside its turn."""
        while share.parent is not None:
            share.spent += cost
            share = share.parent

    def charge(self, share: Share, cost: float, *, waits: bool) -> None:
        """The connection that `next` has returned has used so much; `waits`: it has more waiting requests."""
        while share.parent is not None:
            parent = share.parent
            assert parent.waiting[0][2] is share, "no other share is served in between"
            share.spent += cost
            if waits:
                heapreplace(parent.waiting, (share.spent, next(self._numbers), share))
            else:
                heappop(parent.waiting)
                share.is_waiting = False
            waits = bool(parent.waiting)
            share = parent
