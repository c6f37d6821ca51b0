"""Shell: the programs that are measured as processes of their own: Kafka Streams and `barnabas.stream`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.jars import KAFKA_VERSION, MavenMissingError, resolve
from tests.interop.streams.process import TalkingProcess

SOURCE = Path(__file__).with_name("StreamsPeer.java")
START_S = 120.0


def streams_classpath() -> str | None:
    """The class path of Kafka Streams; None where Maven or its repository is missing."""
    if shutil.which("javac") is None:
        return None
    try:
        return f"{resolve(f'org.apache.kafka:kafka-streams:{KAFKA_VERSION}')}/*"
    except (MavenMissingError, subprocess.CalledProcessError):
        return None


@contextmanager
def kafka_streams(
    classpath: str, job: str, servers: str, source: str, target: str, commit_ms: int
) -> Iterator[TalkingProcess]:
    """Kafka Streams with `exactly_once_v2` and two threads, from the moment at which it is running."""
    with tempfile.TemporaryDirectory(prefix="bench-streams-") as folder:
        subprocess.run(["javac", "-cp", classpath, "-d", folder, str(SOURCE)], check=True)
        java = ["java", "-Xmx1g", "-cp", f"{classpath}:{folder}", "StreamsPeer"]
        command = [*java, job, servers, source, target, f"{folder}/state", str(commit_ms)]
        process = TalkingProcess(command, Path(folder) / "log.txt")
        try:
            process.wait_for("STATE RUNNING", START_S)
            yield process
        finally:
            process.kill()


@contextmanager
def our_stream(servers: str, source: str, target: str) -> Iterator[TalkingProcess]:
    """`barnabas.stream` with the same mapping, from the moment at which it has its partitions."""
    with tempfile.TemporaryDirectory(prefix="bench-streams-") as folder:
        command = [sys.executable, "-m", "bench.pipelines.mapper", servers, source, target]
        process = TalkingProcess(command, Path(folder) / "log.txt")
        try:
            process.wait_for("running", START_S)
            yield process
        finally:
            process.kill()
