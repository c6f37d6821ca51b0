"""Shell: HTTP basic authentication, as Connect's BasicAuthSecurityRestExtension with PropertyFileLoginModule has it.

    KafkaConnect {
        org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule required
            file="/etc/connect/users.properties";
    };

This is the file of `java.security.auth.login.config`, a setting of the worker, or of Java's option
`-Djava.security.auth.login.config=..` in the environment variable KAFKA_OPTS. The file that it names has a line
`name=password` for each user. Unlike Connect's, a file without users is an error, and does not let all requests pass.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from barnabas.core.config import ConfigError
from barnabas.protocol.security.jaas import parse_jaas
from barnabas.protocol.transport.http import HttpResponse
from barnabas.spark.connectors.connect.worker_config import WorkerConfigError

ENTRY: Final = "KafkaConnect"
LOGIN_MODULE: Final = "org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule"
_SETTING: Final = "java.security.auth.login.config"
_IN_OPTIONS: Final = re.compile(r"(?:^|\s)-D" + re.escape(_SETTING) + r"=(\S+)")
_ENTRY: Final = re.compile(ENTRY + r"\s*\{(?P<body>.*?;)\s*\}\s*;?", re.DOTALL)
_REFUSED: Final = HttpResponse(
    401,
    json.dumps({"error_code": 401, "message": "User cannot access the resource."}).encode(),
    headers={"WWW-Authenticate": 'Basic realm="Kafka Connect"'},
)


def read_users(login_file: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The passwords of the users by their names. Raises WorkerConfigError."""
    options = (os.environ if environment is None else environment).get("KAFKA_OPTS", "")
    found = _IN_OPTIONS.search(options)
    place = login_file or (found[1] if found else "")
    if not place:
        raise WorkerConfigError(
            f"basic authentication needs {_SETTING}, the path of a file with the entry {ENTRY}; Connect has it in"
            f" KAFKA_OPTS, as -D{_SETTING}=/path/file"
        )
    entry = _ENTRY.search(_text(place))
    if entry is None:
        raise WorkerConfigError(f"{place} has no entry {ENTRY} {{ ... }};")
    try:
        login = parse_jaas(entry["body"], place)
    except ConfigError as error:
        raise WorkerConfigError(str(error)) from error
    if login.login_module != LOGIN_MODULE:
        raise WorkerConfigError(f"{place} names {login.login_module}: the only login module is {LOGIN_MODULE}")
    if "file" not in login.options:
        raise WorkerConfigError(f'{place} has no file of users: write file="/path/users.properties"')
    return _users(login.options["file"])


def _users(place: str) -> dict[str, str]:
    lines = (line.strip() for line in _text(place).splitlines())
    pairs = [line.partition("=") for line in lines if line and not line.startswith(("#", "!"))]
    wrong = [name for name, equals, password in pairs if not equals or not name.strip() or not password.strip()]
    if wrong or not pairs:
        raise WorkerConfigError(f"{place} must have a line name=password for each user, and at least one")
    return {name.strip(): password.strip() for name, _, password in pairs}


def _text(place: str) -> str:
    try:
        return Path(place).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkerConfigError(f"{place} cannot be read: {error}") from error


class BasicAuthentication:
    """The `HttpLogin` of a worker's REST API."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = {name.encode(): password.encode() for name, password in users.items()}

    async def refusal(self, authorization: str) -> HttpResponse | None:
        return None if self.is_known(authorization) else _REFUSED

    def is_known(self, authorization: str) -> bool:
        scheme, _, encoded = authorization.strip().partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        except (binascii.Error, ValueError):
            return False
        expected = self._users.get(name)
        same = hmac.compare_digest(password, b"" if expected is None else expected)
        return bool(colon) and expected is not None and same
