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

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from barnabas.core.config import ConfigError
from barnabas.protocol.security.jaas import parse_jaas
from barnabas.protocol.transport.http.settings import HttpUser
from barnabas.spark.connectors.connect.worker_config import WorkerConfigError

ENTRY: Final = "KafkaConnect"
LOGIN_MODULE: Final = "org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule"
_SETTING: Final = "java.security.auth.login.config"
_IN_OPTIONS: Final = re.compile(r"(?:^|\s)-D" + re.escape(_SETTING) + r"=(\S+)")
_ENTRY: Final = re.compile(ENTRY + r"\s*\{(?P<body>.*?;)\s*\}\s*;?", re.DOTALL)
REALM: Final = "Kafka Connect"
REFUSAL: Final = "User cannot access the resource."


def users_file(login_file: str, environment: Mapping[str, str] | None = None) -> str:
    """The path of the file of users. Raises WorkerConfigError."""
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
    return login.options["file"]


def parse_rest_users(text: str, place: str) -> dict[str, HttpUser]:
    """The users in a file with the path `place`, by their names. Raises WorkerConfigError."""
    lines = (line.strip() for line in text.splitlines())
    pairs = [line.partition("=") for line in lines if line and not line.startswith(("#", "!"))]
    wrong = [name for name, equals, password in pairs if not equals or not name.strip() or not password.strip()]
    if wrong or not pairs:
        raise WorkerConfigError(f"{place} must have a line name=password for each user, and at least one")
    return {name.strip(): HttpUser(password.strip(), frozenset()) for name, _, password in pairs}


def _text(place: str) -> str:
    try:
        return Path(place).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkerConfigError(f"{place} cannot be read: {error}") from error
