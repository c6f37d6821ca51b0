"""Port: an object store. An object is written as a whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from barnabas.core.buffers import Buffer


class StoredObject(NamedTuple):
    """An object that a store has."""

    name: str
    size: int


class ObjectStore(Protocol):
    """Objects by name. Names have the characters of topic names and `/`.

    Every method raises StoreUnavailableError if the store fails. After a failed `put` or `delete` it is unknown whether
    the call took effect.
    """

    async def put(self, name: str, parts: AsyncIterator[Buffer]) -> None:
        """Store the parts, one after the other, as one object. Nobody sees the object before it is complete."""
        ...

    async def get(self, name: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end`, exclusive; fewer at the end of the object. Raises ObjectMissingError."""
        ...

    async def read(self, name: str) -> bytes:
        """The whole object, which must be small: an index or a snapshot. Raises ObjectMissingError."""
        ...

    async def size(self, name: str) -> int:
        """The size of the object in bytes. Raises ObjectMissingError."""
        ...

    async def delete(self, name: str) -> None:
        """Delete the object. A missing object is no error."""
        ...


class ListedObjectStore(ObjectStore, Protocol):
    """An object store that can say which objects it has."""

    def objects(self, prefix: str) -> AsyncIterator[StoredObject]:
        """The objects whose names begin with `prefix`, which ends with `/` or is empty, in any order. Raises
        StoreUnavailableError."""
        ...
