"""Shell: the audit log: one JSON object in a line for each change, its user and its outcome."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from barnabas.console.errors import ConsoleError
from barnabas.core.telemetry import get_logger

log = get_logger("barnabas.console.audit")


class AuditLog:
    """Appends to a file, or logs at the level info without one. The lines of a file are flushed one by one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file = None
        if path is not None:
            try:
                self._file = path.open("a", encoding="utf-8", buffering=1)
                path.chmod(0o600)
            except OSError as error:
                raise ConsoleError(f"The audit log {path} cannot be written: {error.strerror or error}") from error

    def write(self, *, time: str, user: str, address: str, change: str, fields: Mapping[str, str], error: str) -> None:
        """One line. `fields` has what was changed, without secrets and values of records; `error` is empty if the
        change succeeded.
        """
        entry = {
            "time": time,
            "user": user or "anonymous",
            "address": address,
            "change": change,
            "fields": dict(fields),
            "outcome": "failed" if error else "done",
            **({"error": error} if error else {}),
        }
        log.info(change, user=entry["user"], outcome=entry["outcome"], fields=json.dumps(entry["fields"]))
        if self._file is not None:
            self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
