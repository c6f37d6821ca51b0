"""Table: the exceptions of backups.

BarnabasError                  (core)
└─ BackupError                 a backup cannot be taken, restored or verified; the message says what to do next
   ├─ DamagedBackupError       an object of the backup is missing, or its bytes are not those that were written
   ├─ NoSuchRunError           the backup has no such run
   └─ TargetNotEmptyError      the cluster to restore into has something that the restore would overwrite
"""

from __future__ import annotations

from barnabas.core.errors import BarnabasError


class BackupError(BarnabasError):
    """A backup cannot be taken, restored or verified."""


class DamagedBackupError(BackupError):
    """An object of the backup is missing, or its bytes are not those that were written."""


class NoSuchRunError(BackupError):
    """The backup has no such run."""


class TargetNotEmptyError(BackupError):
    """The cluster to restore into has something that the restore would overwrite."""
