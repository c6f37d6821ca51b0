"""Shell: the registry: its state, the topic that stores the state, and the only method that changes it.

`client/single_writer/state.py` says how several registries share one topic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from barnabas.client.single_writer.state import SharedLog, SharedState, WritersCompeteError
from barnabas.core.decision import Decision
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.records import Record
from barnabas.registry.schema_cache import SchemaCache
from barnabas.registry.state import RegistryState

R = TypeVar("R")
SchemaLog = SharedLog[Record]
"""Port: the storage of the state."""
_READ_ONLY: Final = (
    "This registry is read-only (leader.eligibility=false): its schemas are a mirror of another cluster's. Register"
    " schemas there."
)


class Registry:
    """The registry that the HTTP API serves."""

    def __init__(self, log: SchemaLog, *, read_only: bool = False) -> None:
        """With `read_only`, every change is refused, and nothing is ever written: the topic is a mirror."""
        self._read_only = read_only
        self.state = RegistryState()
        self.schema_cache = SchemaCache(self.state)
        self._shared: SharedState[Record] = SharedState(log, self.state.apply, RegistryError)

    async def refresh(self) -> None:
        """Apply all records that any registry has committed before this call. Concurrent calls share one read."""
        await self._shared.refresh()

    async def change(self, decide: Callable[[RegistryState, SchemaCache], Decision[Record, R]]) -> R:
        """Decide a change and write it. `decide` may be called several times; it raises RegistryError to reject the
        request.
        """
        if self._read_only:
            decision = decide(self.state, self.schema_cache)
            if decision.records:
                raise RegistryError(Code.OPERATION_NOT_PERMITTED, _READ_ONLY)
            return decision.response
        try:
            return await self._shared.change(lambda: decide(self.state, self.schema_cache))
        except WritersCompeteError as error:
            raise RegistryError(Code.STORE_ERROR, str(error)) from error
