"""Codec: users with roles, and the file in which they are kept with hashed passwords.

The file has one user in each line, `NAME:ROLE:HASH`; empty lines and lines that begin with `#` are ignored. The hash is
that of `protocol/security/password_hash.py`. `barnabas console add-user` writes such lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from barnabas.console.errors import ConsoleError
from barnabas.protocol.security.password_hash import check_hash

PASSWORD_CHARACTERS_MIN: Final = 8
_NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,64}")


class Role(IntEnum):
    """What a user may do; each role includes the roles before it."""

    VIEWER = 1
    """Sees everything except masked fields, and changes nothing."""
    EDITOR = 2
    """Also produces, resets offsets, creates topics, and changes configs of topics and schemas."""
    ADMIN = 3
    """Also deletes, changes brokers, ACLs, users and quotas, and sees masked fields."""

    @classmethod
    def parse(cls, text: str) -> Role:
        """Raises ValueError that lists the roles."""
        try:
            return cls[text.upper()]
        except KeyError:
            raise ValueError(f"{text!r} is not a role: write viewer, editor or admin") from None


@dataclass(frozen=True, slots=True)
class User:
    """A person who uses the console. Without a login there is one user, whose name is empty."""

    name: str
    role: Role
    password_hash: str = field(default="", repr=False)

    @property
    def secret(self) -> str:
        return self.password_hash

    @property
    def is_anonymous(self) -> bool:
        return not self.name


def parse_users(text: str, source: str) -> Mapping[str, User]:
    """The users of a file's text, by name. Raises ConsoleError that names the line."""
    users: dict[str, User] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            name, role, password_hash = line.strip().split(":")
            check_hash(password_hash)
            if not _NAME.fullmatch(name):
                raise ValueError("a name has 1 to 64 letters, digits and . _ @ -")
            users[name] = User(name, Role.parse(role), password_hash)
        except ValueError as error:
            raise ConsoleError(
                f"{source}:{number}: this line is not a user ({error}). Write lines with `barnabas console add-user`."
            ) from None
    if not users:
        raise ConsoleError(f"{source} has no users. Add one with `barnabas console add-user`.")
    return users


def user_line(name: str, role: Role, password_hash: str) -> str:
    """The line of a user. Raises ValueError for a name that the file cannot have."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a user name: use 1 to 64 letters, digits and . _ @ -")
    return f"{name}:{role.name.lower()}:{password_hash}"
