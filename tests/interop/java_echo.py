"""Shell: has the Java client's own classes read messages and write them back."""

from __future__ import annotations

import struct
import subprocess
import tempfile
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from tests.interop.jars import clients_classpath

SOURCE = Path(__file__).parent / "java" / "WireEcho.java"


class Case(NamedTuple):
    """Bytes that should be a message of the Java class `name` in `version`."""

    name: str
    version: int
    data: bytes


class Outcome(IntEnum):
    ECHOED = 0
    NO_SUCH_VERSION = 1
    REFUSED = 2


class Echo(NamedTuple):
    """What Java wrote back (or its complaint), and how it prints the message."""

    outcome: Outcome
    data: bytes
    shown: str = ""


def echo(cases: Sequence[Case], kafka_version: str) -> list[Echo]:
    """One JVM for all cases. Raises MavenMissingError where there is no Maven or Java."""
    classpath = clients_classpath(kafka_version)
    with tempfile.TemporaryFile() as stdin:
        for case in cases:
            name = case.name.encode()
            stdin.write(struct.pack(">H", len(name)) + name)
            stdin.write(struct.pack(">hi", case.version, len(case.data)) + case.data)
        stdin.seek(0)
        done = subprocess.run(
            ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath, str(SOURCE)],
            stdin=stdin,
            stdout=subprocess.PIPE,
            check=True,
            timeout=600,
        )
    return _parse(done.stdout)


def _parse(out: bytes) -> list[Echo]:
    echoes, pos = [], 0
    while pos < len(out):
        outcome, length = struct.unpack_from(">bi", out, pos)
        pos += 5
        data = out[pos : pos + length]
        pos += length
        shown = ""
        if outcome == Outcome.ECHOED:
            (length,) = struct.unpack_from(">i", out, pos)
            pos += 4
            shown = out[pos : pos + length].decode()
            pos += length
        echoes.append(Echo(Outcome(outcome), data, shown))
    return echoes
