"""Machine: deletes subjects and versions. A soft delete hides a version, but its id still resolves; a permanent delete
removes it.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas.core.decision import Decision
from barnabas.registry.errors import Code, RegistryError, subject_not_found, version_not_found
from barnabas.registry.records import (
    DeleteSubjectRecord,
    ModeRecord,
    Record,
    SchemaRecord,
    SchemaTombstone,
    SubjectConfigRecord,
)
from barnabas.registry.state import RegistryState
from barnabas.registry.values import Mode


def decide_delete_subject(state: RegistryState, subject: str, *, permanent: bool) -> Decision[Record, list[int]]:
    """The deleted versions, and the records that delete them.

    Raises RegistryError if the subject does not exist or is read-only, if another schema refers to one of the versions,
    if a soft delete finds all versions soft-deleted already, or if a permanent delete finds a version that is not
    soft-deleted.
    """
    _require_writable(state, subject)
    everything = state.versions(subject, deleted=True)
    live = state.versions(subject)
    if not everything:
        raise subject_not_found(subject)
    if permanent and live:
        message = f"Subject '{subject}' was not deleted first before being permanently deleted"
        raise RegistryError(Code.SUBJECT_NOT_SOFT_DELETED, message)
    if not permanent and not live:
        message = f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
        raise RegistryError(Code.SUBJECT_SOFT_DELETED, message)
    doomed = everything if permanent else live
    for registered in doomed:
        _require_unreferenced(state, subject, registered.version, permanent=permanent)
    records: list[Record]
    if permanent:
        records = [SchemaTombstone(subject, one.version) for one in doomed]
    else:
        records = [DeleteSubjectRecord(subject, live[-1].version)]
    if subject in state.modes:
        records.append(ModeRecord(subject, None))
    if subject in state.configs:
        records.append(SubjectConfigRecord(subject, None))
    return Decision([one.version for one in doomed], records)


def decide_delete_version(
    state: RegistryState, subject: str, version: int, *, permanent: bool
) -> Decision[Record, int]:
    """The deleted version, and the records that delete it.

    Raises RegistryError if the subject or the version does not exist, if the subject is read-only, if another schema
    refers to the version, if a soft delete finds the version soft-deleted already, or if a permanent delete finds the
    version not soft-deleted.
    """
    _require_writable(state, subject)
    if not state.versions(subject, deleted=True):
        raise subject_not_found(subject)
    registered = state.find(subject, version)
    if registered is None:
        raise version_not_found(version)
    if permanent and not registered.deleted:
        message = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
        raise RegistryError(Code.VERSION_NOT_SOFT_DELETED, message)
    if not permanent and registered.deleted:
        message = f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
        raise RegistryError(Code.VERSION_SOFT_DELETED, message)
    _require_unreferenced(state, subject, version, permanent=permanent)
    if permanent:
        return Decision(version, [SchemaTombstone(subject, version)])
    records: list[Record] = [SchemaRecord(replace(registered, deleted=True))]
    if len(state.versions(subject)) == 1:  # this is the only version, so the subject and its configs are deleted too
        if subject in state.modes:
            records.append(ModeRecord(subject, None))
        if subject in state.configs:
            records.append(SubjectConfigRecord(subject, None))
    return Decision(version, records)


def _require_writable(state: RegistryState, subject: str) -> None:
    if state.mode(subject) in (Mode.READONLY, Mode.READONLY_OVERRIDE):
        raise RegistryError(Code.OPERATION_NOT_PERMITTED, f"Subject '{subject}' is in read-only mode")


def _require_unreferenced(state: RegistryState, subject: str, version: int, *, permanent: bool) -> None:
    """Raise RegistryError (REFERENCE_EXISTS) if another schema refers to this version.

    For a permanent delete, references from soft-deleted schemas count too, because these can still be read by id.
    """
    if state.referring(subject, version, deleted=permanent):
        raise RegistryError(
            Code.REFERENCE_EXISTS,
            "One or more references exist to the schema"
            f" {{magic=1,keytype=SCHEMA,subject={subject},version={version}}}.",
        )
