"""Shell: fetches Java libraries from Maven Central into a cache folder, once, for the tests and benchmarks.

`python -m tests.interop.jars` fetches what `make interop` needs, before any test's clock runs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

KAFKA_VERSION = "4.3.1"
OLDER_VERSION = "3.9.1"
FIRST_KRAFT_VERSION = "3.3.2"
"""The first one whose controllers were meant for production."""
OLDEST_VERSION = "2.1.1"
"""The oldest one that a link can read, and the first one with Zstandard. It needs ZooKeeper."""
SPARK_KAFKA = "org.apache.spark:spark-sql-kafka-0-10_2.13"

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>barnabas.interop</groupId><artifactId>jars</artifactId><version>1</version>
<repositories><repository><id>gcs-maven-central-mirror</id><url>https://repo.maven.apache.org/maven2</url></repository>
</repositories><dependencies>{dependencies}</dependencies></project>
"""
# Spark's parent POM puts a mirror before Maven Central; by its id it is replaced with Central, the one host needed.


class MavenMissingError(RuntimeError):
    """`mvn` or `java` is not on the PATH; `make interop` installs them."""


def cache_dir() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "barnabas-interop"


def resolve(*coordinates: str, exclude: Sequence[str] = ()) -> Path:
    """A folder with the jars of these `group:artifact:version[:classifier]` and all that they depend on."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        raise MavenMissingError("mvn and java are needed: run `make interop`, or apt-get install maven")
    key = hashlib.sha256("\n".join((*coordinates, *exclude)).encode()).hexdigest()[:12]
    folder = cache_dir() / f"{coordinates[0].split(':')[1]}-{coordinates[0].split(':')[2]}-{key}"
    if (folder / ".complete").exists():
        return folder
    work = folder.with_suffix(".tmp")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "pom.xml").write_text(_POM.format(dependencies="".join(_dependency(c, exclude) for c in coordinates)))
    subprocess.run(
        ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"],
        cwd=work,
        check=True,
        timeout=900,
        stdin=subprocess.DEVNULL,
    )
    shutil.rmtree(folder, ignore_errors=True)
    (work / "jars").rename(folder)
    shutil.rmtree(work)
    (folder / ".complete").touch()
    return folder


def _dependency(coordinate: str, exclude: Sequence[str]) -> str:
    group, artifact, version, *classifier = coordinate.split(":")
    exclusions = "".join(
        f"<exclusion><groupId>{g}</groupId><artifactId>{a}</artifactId></exclusion>"
        for g, a in (e.split(":") for e in exclude)
    )
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"{''.join(f'<classifier>{name}</classifier>' for name in classifier)}"
        f"<exclusions>{exclusions}</exclusions></dependency>"
    )


def shell_classpath(version: str = KAFKA_VERSION) -> str:
    """The class path of Apache Kafka's metadata shell."""
    return f"{resolve(f'org.apache.kafka:kafka-shell:{version}')}/*"


def kafka_classpath(version: str = KAFKA_VERSION) -> str:
    """The class path of Apache Kafka's server and tools."""
    return f"{resolve(f'org.apache.kafka:kafka_2.13:{version}', f'org.apache.kafka:kafka-tools:{version}')}/*"


def zookeeper_kafka_classpath(version: str) -> str:
    """The class path of a server of Apache Kafka that needs ZooKeeper, and of a ZooKeeper server."""
    # ZooKeeper's clients before 3.5.8 find no server on Java 14 and newer (ZOOKEEPER-3779).
    others = "org.apache.zookeeper:zookeeper:3.5.10", "org.slf4j:slf4j-log4j12:1.7.25"
    return f"{resolve(f'org.apache.kafka:kafka_2.12:{version}', *others)}/*"


def logging_classpath() -> str:
    """The class path with which Java programs write their log to stderr; without one they write none."""
    return f"{resolve('org.slf4j:slf4j-simple:1.7.36')}/*"


def clients_classpath(version: str = KAFKA_VERSION) -> str:
    """The class path of the Java client alone."""
    return f"{resolve(f'org.apache.kafka:kafka-clients:{version}')}/*"


def mirror_classpath(version: str = KAFKA_VERSION) -> str:
    """The class path of Kafka's MirrorMaker 2, with Connect's runtime."""
    return f"{resolve(f'org.apache.kafka:connect-mirror:{version}')}/*"


def streams_eos_classpath() -> str:
    """The class path of Kafka Streams with its own exactly-once system test, which later test jars lack."""
    version = "4.1.0"
    own = (f"org.apache.kafka:{name}:{version}" for name in ("kafka-streams", "kafka-clients"))
    return f"{resolve(*(coordinate + end for coordinate in own for end in ('', ':test')))}/*"


def main() -> None:
    from bench.connectors.kafka_connect import connect_classpath  # which imports this module

    fetches: list[Callable[[], str]] = [
        kafka_classpath,
        logging_classpath,
        clients_classpath,
        partial(clients_classpath, OLDER_VERSION),
        streams_eos_classpath,
        shell_classpath,
        mirror_classpath,
        partial(connect_classpath, "jdbc"),
    ]
    for fetch in fetches:
        try:
            fetch()
        except subprocess.CalledProcessError:
            print("trying again", file=sys.stderr)
            fetch()


if __name__ == "__main__":
    main()
