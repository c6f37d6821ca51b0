"""Shell: a Spark home from whose PySpark the Python processes of Spark start faster.

Spark puts `$SPARK_HOME/python/lib/pyspark.zip` at the front of the path of every Python process that it starts: the
reader of a stream, the daemon of each kind of worker, the planner of a format. Python compiles modules in a zip file
again in each process, which takes a second of processor time. The home that `spark_home` creates is the installed
PySpark, by symbolic links, but `pyspark.zip` is a directory there. Python stores the modules that it compiles from a
directory, whatever the directory's name is, and the next process reads them.

On YARN Spark uploads `pyspark.zip`, so it must be a file: with HADOOP_CONF_DIR or YARN_CONF_DIR there is no such home.
Source: Spark's `PythonUtils.sparkPythonPath`, and `Client.findPySparkArchives` of its YARN module.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

log = logging.getLogger("barnabas.spark")

_LINKED: Final = ("bin", "conf", "data", "examples", "jars", "licenses", "sbin")
"""What a Spark home has besides `python`. Spark needs few of them; `conf` may be created later."""
_ON_YARN: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


def cache_directory() -> Path:
    """The directory of this user for what may be deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas"


def spark_home() -> Path | None:
    """The Spark home of the installed PySpark, which is created in the user's cache if it is not there. None if Spark
    has to find its home itself: PySpark has no Java part, Spark runs on YARN, or the cache cannot be written.
    """
    if any(os.environ.get(name) for name in _ON_YARN):
        return None
    package = _directory_of("pyspark")
    if package is None or not (package / "jars").is_dir():
        return None
    name = hashlib.sha256(str(package).encode()).hexdigest()[:16]
    try:
        home = cache_directory() / f"spark-{name}"
        if not _is_complete(home, package):
            _create(home, package)
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home directory
        log.debug("Spark uses its own home, because none can be created in the cache: %s", error)
        return None
    return home


def _directory_of(module: str) -> Path | None:
    spec = find_spec(module)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _links(package: Path) -> dict[str, Path]:
    """Where each link of the home points to, by its path in the home. Each archive that Spark puts on the path of
    Python becomes a directory with a link to the package that the archive contains.
    """
    links = {name: package / name for name in _LINKED}
    for archive in (package / "python" / "lib").glob("*.zip"):
        module = "py4j" if archive.name.startswith("py4j") else "pyspark"
        found = _directory_of(module)
        if found is not None:
            links[f"python/lib/{archive.name}/{module}"] = found
    return links


def _is_complete(home: Path, package: Path) -> bool:
    return all((home / path).is_symlink() and (home / path).readlink() == to for path, to in _links(package).items())


def _create(home: Path, package: Path) -> None:
    """Create the home beside its place and rename it, because other processes may create or use the same home."""
    home.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix="spark-", dir=home.parent))
    try:
        for path, to in _links(package).items():
            (fresh / path).parent.mkdir(parents=True, exist_ok=True)
            (fresh / path).symlink_to(to)
        try:
            fresh.rename(home)
        except OSError:
            if _is_complete(home, package):
                return  # another process was faster
            home.rename(fresh / "replaced")  # of another version of PySpark in the same place
            fresh.rename(home)
    finally:
        shutil.rmtree(home / "replaced", ignore_errors=True)
        shutil.rmtree(fresh, ignore_errors=True)
