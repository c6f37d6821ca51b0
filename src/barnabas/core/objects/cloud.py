"""Shell: an object store of a cloud, or one with the same interface, by the library `obstore`.

S3 and what speaks its protocol (MinIO, SeaweedFS, Ceph) are opened from configs; a test passes a store in memory. The
library splits large objects into parts, which it uploads at the same time, and repeats single requests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from barnabas.core.buffers import Buffer
from barnabas.core.config import ConfigError
from barnabas.core.objects.errors import ObjectMissingError, StoreUnavailableError
from barnabas.core.objects.ports import StoredObject

if TYPE_CHECKING:
    from obstore.store import ObjectStore as CloudStore
    from obstore.store import S3Config

_PART_BYTES: Final = 8 * 1024 * 1024
"""S3 takes parts of at least 5 MiB."""
_PARTS_AT_ONCE: Final = 2


class CloudObjectStore:
    """Objects in a bucket."""

    def __init__(self, store: CloudStore) -> None:
        import obstore  # here: only users of such a store need the library

        self._store = store
        self._obstore = obstore

    async def put(self, name: str, parts: AsyncIterator[Buffer]) -> None:
        try:
            await self._obstore.put_async(
                self._store, name, parts, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
            )
        except self._obstore.exceptions.BaseError as error:
            raise _failed(name, error) from error

    async def get(self, name: str, start: int, end: int) -> bytes:
        try:
            return bytes(await self._obstore.get_range_async(self._store, name, start=start, end=end))
        except FileNotFoundError as error:
            raise _missing(name) from error
        except self._obstore.exceptions.BaseError as error:
            raise _failed(name, error) from error

    async def read(self, name: str) -> bytes:
        try:
            result = await self._obstore.get_async(self._store, name)
            return bytes(await result.bytes_async())
        except FileNotFoundError as error:
            raise _missing(name) from error
        except self._obstore.exceptions.BaseError as error:
            raise _failed(name, error) from error

    async def size(self, name: str) -> int:
        try:
            return (await self._obstore.head_async(self._store, name))["size"]
        except FileNotFoundError as error:
            raise _missing(name) from error
        except self._obstore.exceptions.BaseError as error:
            raise _failed(name, error) from error

    async def delete(self, name: str) -> None:
        try:
            await self._obstore.delete_async(self._store, name)
        except FileNotFoundError:
            return  # it was deleted before
        except self._obstore.exceptions.BaseError as error:
            raise _failed(name, error) from error

    async def objects(self, prefix: str) -> AsyncIterator[StoredObject]:
        try:
            async for chunk in self._obstore.list(self._store, prefix=prefix or None):
                for found in chunk:
                    yield StoredObject(found["path"], found["size"])
        except self._obstore.exceptions.BaseError as error:
            raise _failed(prefix, error) from error


def _missing(name: str) -> ObjectMissingError:
    return ObjectMissingError(f"The object {name} does not exist in the object store.")


def _failed(name: str, error: Exception) -> StoreUnavailableError:
    reason = str(error).partition("\n")[0]  # the library adds its own state on further lines
    return StoreUnavailableError(f"The object store failed at {name}: {reason}")


def open_s3(
    *,
    bucket: str,
    region: str | None = None,
    endpoint: str | None = None,
    path_style: bool = False,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
) -> CloudObjectStore:
    """The objects of an S3 bucket. Without keys, the environment and the machine's role give them. Raises ConfigError
    if the library is not installed or the arguments are invalid."""
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ImportError:
        raise ConfigError("An S3 object store needs the library obstore: pip install 'barnabas[tiered]'") from None
    config: S3Config = {"virtual_hosted_style_request": not path_style}
    if access_key_id is not None and secret_access_key is not None:
        config |= {"access_key_id": access_key_id, "secret_access_key": secret_access_key}
    if region is not None:
        config["region"] = region
    if endpoint is not None:
        config["endpoint"] = endpoint
    plain = endpoint is not None and endpoint.startswith("http://")
    try:
        store = S3Store(bucket, config=config, client_options={"allow_http": plain})
    except (BaseError, ValueError) as error:
        raise ConfigError(f"The S3 bucket {bucket} cannot be opened: {error}") from error
    return CloudObjectStore(store)
