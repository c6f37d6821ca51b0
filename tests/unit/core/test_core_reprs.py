"""Reprs without passwords: the function that makes them, and that every class of the product that needs one has one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec import Struct

import barnabas
from barnabas.core.reprs import repr_without


class _Login(Struct, frozen=True):
    user: str
    password: str | None = None

    __repr__ = repr_without("password")


@dataclass(frozen=True, slots=True)
class _Access:
    url: str
    settings: dict[str, str] = field(default_factory=dict)

    __repr__ = repr_without("settings")


class _Key(NamedTuple):
    name: str
    text: str

    def __repr__(self) -> str:
        return repr_without("text")(self)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (_Login("alice", "planted"), "_Login(user='alice', password=<hidden>)"),
        (_Login("alice"), "_Login(user='alice', password=None)"),
        (_Access("u", {"password": "planted"}), "_Access(url='u', settings=<hidden>)"),
        (_Access("u"), "_Access(url='u', settings={})"),
        (_Key("k", "planted"), "_Key(name='k', text=<hidden>)"),
    ],
)
def test_a_hidden_field_is_named_without_its_value(value: object, shown: str) -> None:
    assert repr(value) == shown
    assert "planted" not in f"{[value]}"


_SECRET = re.compile(r"password|passphrase|secret|jaas|hmac|private_key|user_info|salted|credential", re.IGNORECASE)
_SETTINGS = re.compile(
    r"^(client|given|options|texts|configs?|properties|configuration|connection|static_config|admin|consumer|producer"
    r"|(source|target)_settings|spark)$"
)
"""Names of mappings of settings as users wrote them: among them may be passwords."""
_FINE = {
    "NewTopic.configs": "configs of topics; none is a secret",
    "CreatedTopic.configs": "as NewTopic",
    "TopicGroup.configs": "as NewTopic",
    "SqlDataset.properties": "properties of a table, which Spark shows, too",
    "ScramImage.credentials": "the repr of ScramCredential shows no key",
    "LoginSession.password_mark": "a part of a hash, by which the console notices a new password",
    "SecuritySources.scram_credential": "a function",
}


def _classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    root = Path(barnabas.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if "wire/messages" in path.as_posix() or "testing/sim" in path.as_posix():
            continue  # messages have `sensitive=True`; the simulator has no real users
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                yield path.relative_to(root), node


def _is_value(node: ast.ClassDef) -> bool:
    """Whether the class has a generated repr with the values of its fields."""
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    return bool(bases & {"Struct", "NamedTuple"}) or any("dataclass" in name for name in decorators)


def _has_repr(node: ast.ClassDef) -> bool:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__repr__":
            return True
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__repr__":
            return True
    return False


def test_values_with_secrets_have_a_repr_without_them() -> None:
    """A new class with such a field gets `__repr__ = repr_without(...)`, or a row in `_FINE` that says why not."""
    shown = []
    for path, node in _classes():
        if not _is_value(node) or _has_repr(node):
            continue
        for statement in node.body:
            if not isinstance(statement, ast.AnnAssign) or "repr=False" in ast.unparse(statement):
                continue
            name, kind = ast.unparse(statement.target), ast.unparse(statement.annotation)
            is_text = re.search(r"\b(str|bytes)\b", kind) is not None
            if is_text and (_SECRET.search(name) or ("Mapping" in kind and _SETTINGS.match(name))):
                shown.append(f"{path}: {node.name}.{name}: {kind}")
    unexplained = [line for line in shown if line.split(": ")[1] not in _FINE]
    assert not unexplained, "\n".join(unexplained)
    assert {line.split(": ")[1] for line in shown} >= _FINE.keys(), "no longer needed in _FINE"
