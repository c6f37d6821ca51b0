"""Shell: an object store in memory whose faults are decided by a seed.

A call may fail before it takes effect or after it, be slow, or never return. A stored object may be lost although the
store has confirmed it. A lost or failed call never leaves a part of an object.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.server.tiering.errors import ObjectMissingError, StoreUnavailableError


class ObjectFaults(Struct):
    """The probability of each fault for each call, and the time that a call takes."""

    fails: float = 0.0
    """The call raises an error. In half of the cases it has taken effect before."""
    hangs: float = 0.0
    """The call never returns. In half of the cases it has taken effect before."""
    loses: float = 0.0
    """The object is lost after `put` has returned."""
    delay_ms: float = 0.0
    cut_off: bool = False
    """Every call fails without effect."""


class SimObjectStore:
    """Objects by name. `faults` may be changed at any time."""

    def __init__(self, rng: random.Random, faults: ObjectFaults | None = None) -> None:
        self.faults = ObjectFaults() if faults is None else faults
        self.objects: dict[str, bytes] = {}
        self.calls: list[tuple[str, str]] = []
        """The method and the object of every call, in their order."""
        self._rng = rng

    async def put(self, name: str, parts: AsyncIterator[Buffer]) -> None:
        data = b"".join([bytes(part) async for part in parts])
        fault = await self._enter("put", name)
        if not self._happens(self.faults.loses) and fault != "before":
            self.objects[name] = data
        await self._leave(name, fault)

    async def get(self, name: str, start: int, end: int) -> bytes:
        await self._leave(name, await self._enter("get", name))
        return self._known(name)[start:end]

    async def read(self, name: str) -> bytes:
        await self._leave(name, await self._enter("read", name))
        return self._known(name)

    async def size(self, name: str) -> int:
        await self._leave(name, await self._enter("size", name))
        return len(self._known(name))

    async def delete(self, name: str) -> None:
        fault = await self._enter("delete", name)
        if fault != "before":
            self.objects.pop(name, None)
        await self._leave(name, fault)

    def _known(self, name: str) -> bytes:
        if name not in self.objects:
            raise ObjectMissingError(f"The object {name} does not exist.")
        return self.objects[name]

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._rng.random() < probability

    async def _enter(self, method: str, name: str) -> str | None:
        """Let the time of the call pass. Returns "before" or "after" for a fault on that side of the effect."""
        self.calls.append((method, name))
        faults = self.faults
        await asyncio.sleep(faults.delay_ms * self._rng.random() / 500)
        if faults.cut_off:
            return "before"
        if self._happens(faults.hangs):
            if self._happens(0.5) and method in ("put", "delete"):
                return "hangs"
            await asyncio.get_running_loop().create_future()
        if self._happens(faults.fails):
            return "after" if self._happens(0.5) else "before"
        return None

    async def _leave(self, name: str, fault: str | None) -> None:
        if fault == "hangs":
            await asyncio.get_running_loop().create_future()
        if fault is not None:
            raise StoreUnavailableError(f"The object store failed at {name}.")
