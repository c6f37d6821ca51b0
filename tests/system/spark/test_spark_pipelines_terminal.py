"""`barnabas pipelines run --continuous` as its user sees it: a live table in a terminal, Ctrl-C, and a next run."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from barnabas.cli.output import EXIT_INTERRUPTED
from tests.progress import STANDSTILL_S
from tests.system.spark.broker import Topics
from tests.system.spark.pipeline_projects import Write, json_record, run_once, topic_stream

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
CTRL_C = b"\x03"
COLUMNS, LINES = 160, 30


class Terminal:
    """A command on a terminal of its own, and what it has printed there."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master = master
        self._output = b""
        self.process = process

    @property
    def text(self) -> str:
        """The output without control sequences."""
        return _ESCAPES.sub("", self._output.decode(errors="replace"))

    def press(self, key: bytes) -> None:
        os.write(self._master, key)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first match in the output. Raises AssertionError if the command ends, or prints nothing for long."""
        while (found := re.search(pattern, self.text)) is None:
            assert self.read(), f"the command has ended without printing {pattern!r}:\n{self.text}"
        return found

    def read(self) -> bool:
        """Read what is there next; False at the end of the output."""
        ready, _, _ = select.select([self._master], [], [], STANDSTILL_S)
        assert ready, f"nothing was printed for {STANDSTILL_S:g} s after\n{self.text}"
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # Linux: no process has the terminal open
            return False
        self._output += data
        return bool(data)


@contextmanager
def on_terminal(command: list[str]) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", "COLUMNS": str(COLUMNS)}
    process = subprocess.Popen(
        [sys.executable, "-c", _WITH_TERMINAL, *command],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)


_WITH_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C becomes a signal, for this process and its children
os.execv(sys.executable, [sys.executable, "-m", "barnabas", *sys.argv[1:]])
"""


@pytest.mark.system
@pytest.mark.slow
def test_a_run_in_a_terminal_shows_its_progress_and_ends_with_ctrl_c(
    spark: SparkSession, topics: Topics, servers: str, topic: str, write: Write
) -> None:
    query = topic_stream(servers, topic, "id long")
    files = {"a.py": f"dp.create_sink('out', 'noop')\n@dp.append_flow(target='out')\ndef ids():\n    return {query}\n"}
    project = write(files)
    topics.create(topic)
    topics.produce(topic, [json_record(id=number) for number in range(40)])
    with on_terminal(["pipelines", "run", str(project.directory), "--continuous", "--master", "local[2]"]) as terminal:
        header = terminal.wait_for(r"FLOW +STATE +ROWS +ROWS/S +LAG +BATCH +MS +WATERMARK +STATE SIZE")
        row = terminal.wait_for(r"ids +running +40 +([1-9][\d,]*) +0 +1 +(\d[\d,]*) ")
        assert header.start() < row.start()
        assert project.is_running
        topics.produce(topic, [json_record(id=40)])
        terminal.wait_for(r"ids +running +41 ")
        terminal.press(CTRL_C)
        while terminal.read():
            pass
        assert terminal.process.wait() == EXIT_INTERRUPTED
    after = terminal.text[terminal.text.index("stopping; press Ctrl-C again to end at once ...") :]
    assert re.search(r"ids +stopped +41 ", after)
    assert "stopped; the next run continues from here" in after
    assert "Traceback" not in terminal.text

    assert not project.is_running
    topics.produce(topic, [json_record(id=number) for number in range(41, 44)])
    assert run_once(project, spark)["ids"]["rows"] == 3
