"""Shell: opens the object store that the configs name.

The configs begin with `remote.log.storage.manager.impl.prefix` (`rsm.config.`), as those of a storage plug-in of Kafka;
their names are those of Aiven's plug-in where it has the same setting.

    storage.root                              a directory that all brokers share, by its absolute path
    storage.s3.bucket.name                    or a bucket
    storage.s3.endpoint.url storage.s3.region storage.s3.path.style.access.enabled
    storage.aws.access.key.id storage.aws.secret.access.key
    key.prefix                                what the names of all objects begin with
    storage.request.timeout.ms                how long a request may take; an upload: how long without progress (30000)
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Final

from msgspec import Struct

from barnabas.core.config import ConfigError
from barnabas.core.objects.cloud import open_s3
from barnabas.core.objects.ports import ObjectStore
from barnabas.server.storage.fs import FileSystem
from barnabas.server.tiering.store.files import FileObjectStore

ROOT: Final = "storage.root"
BUCKET: Final = "storage.s3.bucket.name"
ENDPOINT: Final = "storage.s3.endpoint.url"
REGION: Final = "storage.s3.region"
PATH_STYLE: Final = "storage.s3.path.style.access.enabled"
ACCESS_KEY: Final = "storage.aws.access.key.id"
SECRET_KEY: Final = "storage.aws.secret.access.key"
KEY_PREFIX: Final = "key.prefix"
TIMEOUT: Final = "storage.request.timeout.ms"
_OF_S3: Final = frozenset({BUCKET, ENDPOINT, REGION, PATH_STYLE, ACCESS_KEY, SECRET_KEY})


class OpenedStore(Struct, frozen=True):
    """An object store, and what the names of all objects begin with."""

    store: ObjectStore
    prefix: str
    timeout_ms: int = 30_000
    """How long one request may take."""


def open_store(settings: Mapping[str, str], fs: FileSystem, disk: Executor, *, of: str = "rsm.config.") -> OpenedStore:
    """The store of `settings`, whose names are without the prefix `of`. Raises ConfigError; the message has the fix."""
    unknown = sorted(settings.keys() - _OF_S3 - {ROOT, KEY_PREFIX, TIMEOUT})
    if unknown:
        raise ConfigError(f"{of}{unknown[0]} is not a setting of the object store. Remove it, or correct its name.")
    prefix = settings.get(KEY_PREFIX, "")
    timeout = settings.get(TIMEOUT, "30000")
    if not timeout.isdecimal() or int(timeout) < 1:
        raise ConfigError(f"{of}{TIMEOUT}={timeout} is not a number of milliseconds above 0.")
    root = settings.get(ROOT)
    if root is not None:
        others = sorted(settings.keys() & _OF_S3)
        if others:
            raise ConfigError(f"{of}{ROOT} and {of}{others[0]} name two object stores. Remove one of them.")
        if not root.startswith("/"):
            raise ConfigError(f"{of}{ROOT}={root} is not an absolute path.")
        return OpenedStore(FileObjectStore(fs, root, disk), prefix, int(timeout))
    if BUCKET not in settings:
        raise ConfigError(
            f"No object store is configured. Set {of}{ROOT} to a directory that all brokers share, or "
            f"{of}{BUCKET} to a bucket."
        )
    path_style = settings.get(PATH_STYLE, "false").lower()
    if path_style not in ("true", "false"):
        raise ConfigError(f"{of}{PATH_STYLE}={path_style} is not true or false.")
    if (ACCESS_KEY in settings) != (SECRET_KEY in settings):
        raise ConfigError(f"{of}{ACCESS_KEY} and {of}{SECRET_KEY} belong together. Set both, or none of them.")
    store = open_s3(
        bucket=settings[BUCKET],
        region=settings.get(REGION),
        endpoint=settings.get(ENDPOINT),
        path_style=path_style == "true",
        access_key_id=settings.get(ACCESS_KEY),
        secret_access_key=settings.get(SECRET_KEY),
    )
    return OpenedStore(store, prefix, int(timeout))
