"""Value: definitions of configs: name, type, default, range, documentation, and how a config can be changed.

The tables of topic, broker, group and client-metrics configs are `ConfigDef`s, which consist of `ConfigKey` rows. Text
is parsed as by Kafka's `org.apache.kafka.common.config.ConfigDef`: the same values are accepted, and the same rejected.

    text (server.properties, -c key=value, a ConfigRecord)  --parse-->  typed value  --to_text-->  text
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, IntEnum
from typing import Any, Final, Protocol

from msgspec import Struct, field

from barnabas.core.errors import ErrorCode, KafkaError

ConfigValue = bool | int | float | str | tuple[str, ...] | None
"""The type of a parsed value. Lists are tuples; classes and passwords are strings."""


class ConfigType(IntEnum):
    """The type of a config; the integer is what DescribeConfigs v3+ reports (`ConfigEntry.ConfigType` on the wire)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(Enum):
    """How likely a user is to need the config."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class UpdateMode(Enum):
    """Whether a broker config can change while the broker runs, and at which level (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class ConfigError(KafkaError):
    """An invalid config value; the error code is INVALID_CONFIG."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)


def invalid_value(name: str, value: object, reason: str) -> ConfigError:
    """A ConfigError with Kafka's message: the value, the config, and the valid values."""
    return ConfigError(f"Invalid value {_show(value)} for configuration {name}: {reason}")


class Validator(Protocol):
    """Checks a typed value and raises ConfigError if it is invalid. `str()` returns the valid range for users."""

    def __call__(self, name: str, value: Any) -> None: ...


class InRange(Struct, frozen=True):
    """A number between two inclusive bounds. None means no bound (Kafka's `Range`)."""

    low: float | None = None
    high: float | None = None

    def __call__(self, name: str, value: Any) -> None:
        if value is None:
            raise invalid_value(name, None, "Value must be non-null")
        if self.low is not None and value < self.low:
            raise invalid_value(name, value, f"Value must be at least {self.low}")
        if self.high is not None and value > self.high:
            raise invalid_value(name, value, f"Value must be no more than {self.high}")

    def nearest(self, value: float) -> float:
        """The valid number that is nearest to `value`."""
        at_least = value if self.low is None else max(value, self.low)
        return at_least if self.high is None else min(at_least, self.high)

    def __str__(self) -> str:
        return f"[{'...' if self.low is None else self.low},...{'' if self.high is None else f',{self.high}'}]"


class OneOf(Struct, frozen=True):
    """One of a fixed set of strings (Kafka's `ValidString` and `CaseInsensitiveValidString`)."""

    choices: tuple[str, ...]
    ignore_case: bool = False
    nullable: bool = False

    def __call__(self, name: str, value: Any) -> None:
        if value is None and self.nullable:
            return
        text = str(value)
        if self.ignore_case:
            if text.upper() in {choice.upper() for choice in self.choices}:
                return
        elif text in self.choices:
            return
        raise invalid_value(name, value, f"String must be one of: {', '.join(self.choices)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.choices)}]"


class ListOf(Struct, frozen=True):
    """A list without blanks; with `choices` each element must be one of them (Kafka's `ValidList`)."""

    choices: tuple[str, ...] = ()
    empty_allowed: bool = True
    nullable: bool = False

    def __call__(self, name: str, value: Any) -> None:
        if value is None:
            if self.nullable:
                return
            raise invalid_value(name, None, "Values must not be null")
        if not value and not self.empty_allowed:
            allowed = f". Valid values are: {', '.join(self.choices)}" if self.choices else ""
            raise invalid_value(name, "", f"Configuration '{name}' must not be empty{allowed}")
        for item in value:
            if not item:
                raise invalid_value(name, value, f"Configuration '{name}' values must not be empty")
            if self.choices and item not in self.choices:
                raise invalid_value(name, item, f"String must be one of: {', '.join(self.choices)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.choices)}]" if self.choices else "list"


class NonEmpty(Struct, frozen=True):
    """A string that is not empty; with `printable` also without control characters; null only if `nullable`."""

    nullable: bool = True
    printable: bool = False

    def __call__(self, name: str, value: Any) -> None:
        if value is None:
            if self.nullable:
                return
            raise invalid_value(name, None, "entry must be non null")
        if not str(value).strip():
            raise invalid_value(name, value, "String must be non-empty")
        if self.printable and any(ord(ch) < 32 or ord(ch) == 127 for ch in value):
            raise invalid_value(
                name, value, "String may not contain control sequences but had the following ASCII chars"
            )

    def __str__(self) -> str:
        return "non-empty string"


class RangeOrSpecial(Struct, frozen=True):
    """A number in a range, or one special value outside of it (-1 or -2 for "no limit", "follow another config")."""

    special: int
    low: int
    high: int | None = None

    def __call__(self, name: str, value: Any) -> None:
        if value == self.special:
            return
        if value is None or value < self.low or (self.high is not None and value > self.high):
            bounds = f"at least {self.low}" if self.high is None else f"between {self.low} and {self.high}"
            raise invalid_value(name, value, f"Value must be {bounds} or equal to {self.special}")

    def nearest(self, value: float) -> float:
        """The valid number that is nearest to `value`, other than the special one."""
        at_least = max(value, self.low)
        return at_least if self.high is None else min(at_least, self.high)

    def __str__(self) -> str:
        return f"{self.special} or [{self.low},...{'' if self.high is None else f',{self.high}'}]"


class _Required(Enum):
    REQUIRED = "required"


REQUIRED: Final = _Required.REQUIRED
"""Marks a config without a default, which must be set."""


class ConfigKey(Struct, frozen=True):
    """The definition of one config: its name, type, default, documentation and validation."""

    name: str
    type: ConfigType
    default: ConfigValue | _Required
    doc: str
    validator: Validator | None = None
    importance: Importance = Importance.MEDIUM
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    sensitive: bool = False
    internal: bool = False
    """DescribeConfigs lists the config only if it is set."""
    synonyms: tuple[str, ...] = ()
    """The broker configs that supply the value if this config is not set, in order of precedence."""
    stored: Validator | None = None
    """Which values in the metadata stay in effect although `validator` refuses them: those of older versions of Kafka,
    if another value would harm brokers that run such a version."""
    is_object: bool = False
    """The value is a Python object, such as a function, that no text can express; it is not converted."""

    @property
    def is_sensitive(self) -> bool:
        """Whether DescribeConfigs returns null instead of the value."""
        return self.sensitive or self.type is ConfigType.PASSWORD

    @property
    def is_dynamic(self) -> bool:
        return self.update_mode is not UpdateMode.READ_ONLY

    def parse(self, raw: object) -> ConfigValue:
        """The typed, validated value of `raw` (text or already typed). Raises ConfigError."""
        if self.is_object:
            return raw  # type: ignore[return-value]  # objects are no ConfigValue
        value = parse_value(self.name, self.type, raw)
        if self.validator is not None:
            self.validator(self.name, value)
        return value

    def replaces(self, raw: object) -> bool:
        """Whether the stored text `raw` has another value in effect (`parse_stored`)."""
        try:
            return self.parse_stored(raw) != parse_value(self.name, self.type, raw)
        except ConfigError:
            return True

    def parse_stored(self, raw: object) -> ConfigValue:
        """The typed value of a text in the metadata, which another version or Apache Kafka may have accepted: a number
        out of the range becomes the nearest valid one, unless `stored` allows it. Raises ConfigError if there is
        none."""
        validator = self.stored or self.validator
        value = parse_value(self.name, self.type, raw)
        if isinstance(validator, (InRange, RangeOrSpecial)) and isinstance(value, (int, float)):
            try:
                validator(self.name, value)
            except ConfigError:
                return parse_value(self.name, self.type, validator.nearest(value))
            return value
        return self.parse(raw)

    def to_text(self, value: ConfigValue) -> str | None:
        return value_to_text(value)


class ConfigDef(Struct, frozen=True):
    """A table of configs, looked up by name."""

    keys: Mapping[str, ConfigKey] = field(default_factory=dict)

    @staticmethod
    def of(*groups: Iterable[ConfigKey]) -> ConfigDef:
        """Build a table from several groups of rows. A name must not occur twice."""
        keys: dict[str, ConfigKey] = {}
        for group in groups:
            for key in group:
                assert key.name not in keys, f"config {key.name} is defined twice"
                keys[key.name] = key
        return ConfigDef(dict(sorted(keys.items())))

    def __contains__(self, name: object) -> bool:
        return name in self.keys

    def __getitem__(self, name: str) -> ConfigKey:
        return self.keys[name]

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self.keys.values())

    def __len__(self) -> int:
        return len(self.keys)

    def get(self, name: str) -> ConfigKey | None:
        return self.keys.get(name)

    def parse(self, name: str, raw: object) -> ConfigValue:
        """The typed value of one config. Raises ConfigError for an unknown name or a bad value."""
        key = self.keys.get(name)
        if key is None:
            raise ConfigError(f"Unknown configuration {name!r}: check the spelling.")
        return key.parse(raw)

    def parse_all(self, given: Mapping[str, object]) -> dict[str, ConfigValue]:
        """Every config of the table: the given value if there is one, else the default.

        Names that are not in the table are ignored, as in Kafka (they may belong to plug-ins). Raises ConfigError for a
        bad value and for a required config that is missing.
        """
        values: dict[str, ConfigValue] = {}
        for key in self.keys.values():
            if key.name in given:
                values[key.name] = key.parse(given[key.name])
            elif isinstance(key.default, _Required):
                raise ConfigError(f'Missing required configuration "{key.name}" which has no default value.')
            else:
                values[key.name] = key.default
        return values


def default_of(key: ConfigKey) -> ConfigValue:
    """The default in the table; None for a config that has none and must be set."""
    return None if key.default is REQUIRED else key.default


_INT_BOUNDS: Final = {
    ConfigType.SHORT: (-(1 << 15), (1 << 15) - 1),
    ConfigType.INT: (-(1 << 31), (1 << 31) - 1),
    ConfigType.LONG: (-(1 << 63), (1 << 63) - 1),
}


def parse_value(name: str, type_: ConfigType, raw: object) -> ConfigValue:
    """`raw` as a value of `type_`, as `ConfigDef.parseType` reads it. None stays None. Raises ConfigError."""
    if raw is None:
        return None
    if isinstance(raw, str):
        raw = raw.strip()
    match type_:
        case ConfigType.BOOLEAN:
            if isinstance(raw, bool):
                return raw
            lowered = raw.lower() if isinstance(raw, str) else ""
            if lowered in ("true", "false"):
                return lowered == "true"
            raise invalid_value(name, raw, "Expected value to be either true or false")
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            return _parse_integer(name, type_, raw)
        case ConfigType.DOUBLE:
            try:
                return float(raw)  # type: ignore[arg-type]  # the errors of float() are handled below
            except (TypeError, ValueError):
                raise invalid_value(name, raw, "Not a number of type DOUBLE") from None
        case ConfigType.LIST:
            if isinstance(raw, str):
                return _distinct(part.strip() for part in raw.split(",")) if raw else ()
            if isinstance(raw, (list, tuple)):
                return _distinct(map(str, raw))
            raise invalid_value(name, raw, "Expected a comma separated list.")
        case ConfigType.STRING | ConfigType.CLASS | ConfigType.PASSWORD:
            return str(raw)


def _distinct(parts: Iterable[str]) -> tuple[str, ...]:
    """Remove repeated elements, as Kafka 4.2 and later do (KIP-1161)."""
    return tuple(dict.fromkeys(parts))


def _parse_integer(name: str, type_: ConfigType, raw: object) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        number = raw
    else:
        text = raw if isinstance(raw, str) else ""
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit()):
            raise invalid_value(name, raw, f"Not a number of type {type_.name}")
        number = int(text) if len(digits) <= 20 else 1 << 64
    low, high = _INT_BOUNDS[type_]
    if not low <= number <= high:
        raise invalid_value(name, raw, f"Not a number of type {type_.name}")
    return number


def value_to_text(value: ConfigValue) -> str | None:
    """A typed value as Kafka writes it in a ConfigRecord or a DescribeConfigs response."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _java_double(value)
    return str(value)


def _java_double(value: float) -> str:
    """`Double.toString`: decimal between 0.001 and 10 million, else scientific with one digit before the point."""
    if value == 0 or 1e-3 <= abs(value) < 1e7 or value != value or abs(value) == float("inf"):
        return repr(value)
    digits, _, exponent = f"{value:.17e}".partition("e")
    for precision in range(17):  # the shortest text that parses to the same number
        short, _, exponent = f"{value:.{precision}e}".partition("e")
        if float(f"{short}e{exponent}") == value:
            digits = short
            break
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


def _show(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(str, value)) + "]"
    return str(value)
