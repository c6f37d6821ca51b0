"""Value: builds the typed config classes of the packages (`ReplicationConfig`, `RaftConfig`, ...) from config values.

A package declares the configs that it uses as one struct whose name ends in `Config`. Each field has the full Kafka
name of its config, with `_` for `.`: the field `replica_lag_time_max_ms` holds `replica.lag.time.max.ms`. Such a field
has no default, because the defaults are in the config table only (`server/metadata/configs`).

A field with a default is a constant of Barnabas that is not a config; its name must not be in the table. A field that
is computed from several configs, or from something other than a config, is listed in `computed` and passed to `build`.

`ConfigBuilder` is created when its module is imported, and checks the struct against the table then: a field that names
no config, or whose type is not the config's type, raises TypeError at import. Units cannot differ, since the config's
name carries the unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Final, Generic, TypeVar, get_args

from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields, replace

from barnabas.core.config import ConfigDef, ConfigKey, ConfigType, default_of

C = TypeVar("C", bound=Struct)

_FIELD_TYPES: Final[Mapping[ConfigType, object]] = {
    ConfigType.BOOLEAN: bool,
    ConfigType.STRING: str,
    ConfigType.INT: int,
    ConfigType.SHORT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.LIST: tuple[str, ...],
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}


class ConfigBuilder(Generic[C]):
    """Builds instances of one config class from the values of one config table."""

    def __init__(self, config_class: type[C], table: ConfigDef, computed: Iterable[str] = ()) -> None:
        """Raises TypeError if a field contradicts the table, or if `computed` has a name that is not a field."""
        self._config_class = config_class
        self._table = table
        self._plan: dict[str, tuple[str, Callable[[Any], Any] | None]] = {}
        rest = set(computed)
        for info in fields(config_class):
            if info.name in rest:
                rest.remove(info.name)
            else:
                self._add(info)
        if rest:
            raise TypeError(f"{config_class.__name__} has no fields {sorted(rest)}.")

    def _add(self, info: FieldInfo) -> None:
        name = info.name.replace("_", ".")
        key = self._table.get(name)
        where = f"{self._config_class.__name__}.{info.name}"
        has_default = info.default is not NODEFAULT or info.default_factory is not NODEFAULT
        if key is None:
            if not has_default:
                raise TypeError(f"{where}: there is no config {name!r}. Use the full name of the config.")
            return
        if has_default:
            raise TypeError(f"{where}: remove the default; the default of {name} is in the config table.")
        self._plan[info.name] = name, _converter(where, info.type, key)

    @property
    def config_names(self) -> frozenset[str]:
        """The configs that the class has fields for."""
        return frozenset(name for name, _ in self._plan.values())

    def build(self, value_of: Callable[[str], Any], **computed: Any) -> C:
        """An instance with the values that `value_of` returns for the names of the configs.

        `value_of` returns the typed value that is in effect. `computed` has the values of the computed fields.
        """
        values = {
            field: value_of(name) if convert is None else convert(value_of(name))
            for field, (name, convert) in self._plan.items()
        }
        return self._config_class(**values, **computed)

    def from_defaults(self, **changes: Any) -> C:
        """An instance with the table's defaults, for tests and benchmarks; `changes` gives other values by field.

        A config without a default is None unless `changes` has a value for it.
        """
        values = {field: changes.pop(field) for field in self._plan if field in changes}
        return replace(self.build(lambda name: default_of(self._table[name]), **changes), **values)


def _converter(where: str, declared: Any, key: ConfigKey) -> Callable[[Any], Any] | None:
    """How to convert the config's value for a field of type `declared`; None if the value stays as it is."""
    nullable = key.default is None
    wanted = _FIELD_TYPES[key.type]
    options = set(get_args(declared)) if isinstance(declared, UnionType) else {declared}
    if nullable != (NoneType in options):
        raise TypeError(f"{where}: the value of {key.name} {'can' if nullable else 'cannot'} be None.")
    options.discard(NoneType)
    if options == {wanted}:
        return None
    (only,) = options if len(options) == 1 else (None,)
    if wanted is str and isinstance(only, type) and issubclass(only, Enum):
        return lambda text: only(text.lower())
    raise TypeError(f"{where} is {declared}, but the type of {key.name} is {key.type.name} ({wanted}).")
