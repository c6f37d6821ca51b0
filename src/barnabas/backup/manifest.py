"""Codec: the names of a backup's objects, and the manifests of its runs.

    runs/<run id>.json           the manifest of a complete run, written after all objects that it names
    runs/<run id>.partial        the same of a run under way, written again and again
    data/<topic>-<topic id>/<partition>/<base offset, 20 digits>-<run id>.batches

    manifest    {"format": 1, "sha256": "<of the bytes of the run>", "run": {...}}

The id of a run is its time, in milliseconds and UTC, and four hexadecimal digits: ids sort by time.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

from barnabas.backup.errors import BackupError, DamagedBackupError
from barnabas.backup.values import RunManifest

FORMAT: Final = 1
RUNS: Final = "runs/"
DATA: Final = "data/"
COMPLETE: Final = ".json"
PARTIAL: Final = ".partial"
BATCHES: Final = ".batches"
_RUN_ID: Final = re.compile(r"(\d{8}T\d{6})(\d{3})Z-[0-9a-f]{4}")
_WRITER: Final = re.compile(r"-(\d{8}T\d{9}Z-[0-9a-f]{4})\.batches(?:\.upload)?\Z")
"""Finds the run's id in the name of an object of batches, also of one that an interrupted put has left."""


class _Manifest(Struct):
    format: int
    sha256: str
    run: msgspec.Raw


def encode_run(run: RunManifest) -> bytes:
    body = msgspec.json.encode(run)
    manifest = _Manifest(FORMAT, hashlib.sha256(body).hexdigest(), msgspec.Raw(body))
    return msgspec.json.encode(manifest) + b"\n"


def decode_run(data: bytes, name: str) -> RunManifest:
    """The run of the manifest `name`. Raises DamagedBackupError, and BackupError for a later format."""
    try:
        manifest = msgspec.json.decode(data, type=_Manifest)
        body = bytes(manifest.run)
        if manifest.format > FORMAT:
            raise BackupError(f"{name} has format {manifest.format}; this version of Barnabas reads up to {FORMAT}.")
        if hashlib.sha256(body).hexdigest() != manifest.sha256:
            raise DamagedBackupError(f"{name} is damaged: its checksum is wrong. Use another run.")
        return msgspec.json.decode(body, type=RunManifest)
    except msgspec.DecodeError as error:
        raise DamagedBackupError(f"{name} is damaged: {error}. Use another run.") from error


def new_run_id(now_ms: int, random: int) -> str:
    time = datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y%m%dT%H%M%S")
    return f"{time}{now_ms % 1000:03d}Z-{random & 0xFFFF:04x}"


def run_time_ms(run_id: str) -> int:
    """The time in the id of a run. Raises ValueError if it is none."""
    found = _RUN_ID.fullmatch(run_id)
    if found is None:
        raise ValueError(f"{run_id!r} is not the id of a run.")
    seconds = datetime.strptime(found[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    return int(seconds.timestamp()) * 1000 + int(found[2])


def run_of_manifest(name: str) -> str | None:
    """The id of the run whose manifest has this name, complete or partial; None for another object."""
    for suffix in (COMPLETE, PARTIAL):
        run_id = name.removeprefix(RUNS).removesuffix(suffix)
        if name == f"{RUNS}{run_id}{suffix}" and _RUN_ID.fullmatch(run_id):
            return run_id
    return None


def manifest_name(run_id: str, *, complete: bool = True) -> str:
    return f"{RUNS}{run_id}{COMPLETE if complete else PARTIAL}"


def batches_name(topic: str, topic_id: str, partition: int, start: int, run_id: str) -> str:
    return f"{DATA}{topic}-{topic_id}/{partition}/{start:020d}-{run_id}{BATCHES}"


def writer_of(name: str) -> str | None:
    """The id of the run that has written this object of batches; None for another object."""
    found = _WRITER.search(name)
    return found[1] if found and name.startswith(DATA) else None
