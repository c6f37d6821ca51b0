"""Machine: compatibility levels and modes of the whole registry, of a context, and of a subject."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.core.decision import Decision
from barnabas.registry.errors import Code, RegistryError, subject_not_found
from barnabas.registry.records import Config, ModeRecord, Record, SubjectConfigRecord, config_from_json
from barnabas.registry.state import DEFAULT_LEVEL, RegistryState
from barnabas.registry.values import Compatibility, Mode


def read_config(state: RegistryState, subject: str | None, *, default_to_global: bool = False) -> Config:
    """The config of a subject, or of the whole registry if `subject` is None. Raises RegistryError
    (COMPATIBILITY_NOT_CONFIGURED) if the subject has no config of its own, unless `default_to_global` allows the
    inherited level.
    """
    if subject is None:
        config = state.configs.get(None, Config())
        return config if config.compatibility is not None else _with_level(config, DEFAULT_LEVEL)
    own = state.configs.get(subject)
    if default_to_global:
        return _with_level(own or Config(), state.compatibility(subject))
    if own is None:
        message = f"Subject '{subject}' does not have subject-level compatibility configured"
        raise RegistryError(Code.COMPATIBILITY_NOT_CONFIGURED, message)
    return own


def decide_config(state: RegistryState, subject: str | None, request: Mapping[str, Any]) -> Decision[Record, Config]:
    """Change the fields that the request contains and keep the others. Returns the new config. Raises RegistryError for
    an unknown compatibility level, or if the subject is read-only.
    """
    try:
        change = config_from_json(request)
    except ValueError:
        levels = ", ".join(level.value.lower() for level in Compatibility)
        raise RegistryError(
            Code.INVALID_COMPATIBILITY, f"Invalid compatibility level. Valid values are {levels}"
        ) from None
    if subject is not None:
        _require_writable(state, subject)
    old = state.configs.get(subject, Config())
    merged = Config(
        change.compatibility or old.compatibility,
        old.alias if change.alias is None else change.alias or None,
        old.normalize if change.normalize is None else change.normalize,
        change.compatibility_group or old.compatibility_group,
        {**old.rest, **change.rest},
    )
    return Decision(merged, [SubjectConfigRecord(subject, merged)])


def decide_delete_config(state: RegistryState, subject: str | None) -> Decision[Record, Config]:
    """Delete a config, so that the config of the context or of the registry applies. Returns the deleted config."""
    old = state.configs.get(subject)
    if old is None:
        if subject is not None:
            raise subject_not_found(subject)
        return Decision(Config(DEFAULT_LEVEL))
    return Decision(old, [SubjectConfigRecord(subject, None)])


def read_mode(state: RegistryState, subject: str | None, *, default_to_global: bool = False) -> Mode:
    """The mode of a subject, or of the whole registry if `subject` is None. Raises RegistryError (MODE_NOT_CONFIGURED)
    if the subject has no mode of its own, unless `default_to_global` allows the inherited mode.
    """
    if subject is None:
        return state.modes.get(None, Mode.READWRITE)
    if default_to_global:
        return state.mode(subject)
    if subject not in state.modes:
        message = f"Subject '{subject}' does not have subject-level mode configured"
        raise RegistryError(Code.MODE_NOT_CONFIGURED, message)
    return state.modes[subject]


def decide_mode(state: RegistryState, subject: str | None, name: str, *, force: bool) -> Decision[Record, Mode]:
    """Set the mode of a subject, of a context, or, if `subject` is None, of the whole registry. IMPORT is only allowed
    while that subject, context or registry has no schemas, because ids could collide; `force` allows IMPORT always.
    """
    try:
        mode = Mode(name.upper())
    except ValueError:
        valid = ", ".join(one.value for one in Mode)
        raise RegistryError(Code.INVALID_MODE, f"Invalid mode. Valid values are {valid}") from None
    if mode is Mode.READONLY_OVERRIDE and subject is not None:
        raise RegistryError(
            Code.INVALID_MODE, ("READONLY_OVERRIDE can only be set for the whole registry, not for a subject.")
        )
    if mode is Mode.IMPORT and not force and _has_schemas(state, subject):
        raise RegistryError(Code.OPERATION_NOT_PERMITTED, "Cannot import since found existing subjects")
    return Decision(mode, [ModeRecord(subject, mode)])


def decide_delete_mode(state: RegistryState, subject: str | None) -> Decision[Record, Mode]:
    """Delete a mode, so that the mode of the context or of the registry applies. Returns the deleted mode."""
    old = state.modes.get(subject)
    if old is None:
        if subject is not None:
            raise subject_not_found(subject)
        return Decision(Mode.READWRITE)
    return Decision(old, [ModeRecord(subject, None)])


def _has_schemas(state: RegistryState, subject: str | None) -> bool:
    if subject is None:
        return bool(state.subjects)
    if subject.endswith(":"):  # the subject is a whole context
        return any(name.startswith(subject) for name in state.subjects)
    return subject in state.subjects


def _require_writable(state: RegistryState, subject: str) -> None:
    if state.mode(subject) in (Mode.READONLY, Mode.READONLY_OVERRIDE):
        raise RegistryError(Code.OPERATION_NOT_PERMITTED, f"Subject '{subject}' is in read-only mode")


def _with_level(config: Config, level: Compatibility) -> Config:
    return Config(level, config.alias, config.normalize, config.compatibility_group, config.rest)
