"""Shell: `barnabas serve --processes N`: several brokers of one host under one supervisor, with one log.

The supervisor starts `barnabas serve` N times, each with its own node id, ports and data directory
(`server/node/setup/processes.py`), and decides with `supervision.py` what to start again and what to stop. It writes
the lines that the processes log to its own stderr, with the node id in front, and serves no client itself.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO, Final

from barnabas.cli.output import EXIT_USAGE, fail, note
from barnabas.cli.serve.supervision import ProcessAction, Supervision
from barnabas.core.child_processes import start_child
from barnabas.server.node.setup.processes import HostProcess, split_config

_READY: Final = "barnabas ready: "
_READ_BYTES: Final = 65_536
_LINE_BYTES_MAX: Final = 1 << 20
"""The length from which on a line of a child's output is written in pieces, before its end is read."""


def plan_processes(options: Namespace, given: Mapping[str, str]) -> tuple[HostProcess, ...]:
    """Derive the configuration of each process, and check the data directories.

    Raises ConfigError if the configuration does not fit several processes."""
    texts = dict(given)
    if options.data_dir is not None:
        texts["log.dirs"] = options.data_dir
    if options.listener is not None:
        texts["listeners"] = options.listener
    hosted = split_config(texts, options.processes, hostname=socket.gethostname(), free_port=_free_port)
    _check_directories(hosted)
    return hosted


def run_processes(options: Namespace, hosted: tuple[HostProcess, ...]) -> int:
    """Run the processes until SIGTERM, SIGINT or the failure of a start. Returns the exit code of the supervisor."""
    return _Supervisor(options, hosted).run()


def _check_directories(hosted: tuple[HostProcess, ...]) -> None:
    """Reject data directories that hold the data of one node, or of more processes than are started now."""
    planned = {path for process in hosted for path in process.log_dirs}
    for root in sorted({Path(path).parent for path in planned}):
        if (root / "meta.properties").exists():
            fail(
                f"{root} holds the data of a node that was started without --processes. Start it without --processes, "
                "or choose another directory and copy the topics.",
                EXIT_USAGE,
            )
        known = {str(path.parent) for path in root.glob("node-*/meta.properties")}
        if surplus := sorted(known - planned):
            fail(
                f"{', '.join(surplus)}: this data belongs to processes that would not be started, and its partitions "
                "would be offline. Give --processes as before; to have fewer processes, first drain the surplus "
                "brokers (barnabas cluster drain), and then move their directories away.",
                EXIT_USAGE,
            )


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class _Supervisor:
    """Owns the processes and their pipes."""

    def __init__(self, options: Namespace, hosted: tuple[HostProcess, ...]) -> None:
        self._options = options
        self._hosted = hosted
        self._began = time.monotonic()
        self._machine = Supervision(len(hosted))
        self._selector = selectors.DefaultSelector()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ready: dict[int, str] = {}

    def run(self) -> int:
        wake, woken = socket.socketpair()
        with wake, woken, self._selector:
            for sock in (wake, woken):
                sock.setblocking(False)
            signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
                signal.signal(number, lambda _number, _frame: None)
            self._selector.register(wake, selectors.EVENT_READ, partial(self._on_signals, wake))
            try:
                while self._step() is None:
                    pass
            finally:
                for process in self._processes.values():
                    process.kill()  # none is left, unless the supervisor itself failed
        assert self._machine.exit_code is not None
        return self._machine.exit_code

    def _step(self) -> int | None:
        for place, action in self._machine.poll(time.monotonic()):
            match action:
                case ProcessAction.START:
                    self._start(place)
                case ProcessAction.TERMINATE:
                    self._processes[place].terminate()
                case ProcessAction.KILL:
                    self._processes[place].kill()
        if self._machine.exit_code is not None:
            return self._machine.exit_code
        due = self._machine.next_start_at()
        for key, _ in self._selector.select(None if due is None else max(due - time.monotonic(), 0.0)):
            key.data()
        return None

    def _start(self, place: int) -> None:
        process = start_child(
            self._command(place),
            signal.SIGTERM,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal reaches the supervisor only, which stops them in order
            env={name: text for name, text in os.environ.items() if name != "BARNABAS_DATA_DIR"},
        )
        self._processes[place] = process
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, partial(self._on_output, place, stream, bytearray()))

    def _command(self, place: int) -> list[str]:
        options, hosted = self._options, self._hosted[place]
        command = [sys.executable, "-m", "barnabas", "serve", "--log-level", options.log_level]
        command += ["--log-format", options.log_format]
        if options.log_file is not None:
            command += ["--log-file", file_of_process(options.log_file, hosted.node_id)]
            command += ["--log-file-mib", str(options.log_file_mib), "--log-files", str(options.log_files)]
        for name, value in (("--config", options.config), ("--cluster-id", options.cluster_id)):
            if value is not None:
                command += [name, value]
        if options.env:
            command.append("--env")
        if options.metrics is not None:
            command += ["--metrics", url_of_process(options.metrics, place)]
        if options.registry is not None and place == 0:
            command += ["--registry", options.registry]
        if options.console is not None and place == 0:
            command += ["--console", options.console]
        for setting in options.settings:
            command += ["-c", setting]
        for name, text in sorted(hosted.texts.items()):
            command += ["-c", f"{name}={text}"]
        return command

    # ---- events

    def _on_signals(self, wake: socket.socket) -> None:
        for number in wake.recv(_READ_BYTES):
            if number != signal.SIGCHLD:
                again = self._machine.stopping
                self._machine.on_stop()
                note("killing the processes ..." if again else "stopping the processes; a second signal kills them ...")
        for place, process in list(self._processes.items()):
            code = process.poll()
            if code is not None:
                del self._processes[place]
                self._on_exit(place, code)

    def _on_exit(self, place: int, code: int) -> None:
        self._ready.pop(place, None)
        pause = self._machine.on_exit(place, code, time.monotonic())
        ended = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        if pause is not None:
            note(f"node {self._hosted[place].node_id} {ended}; it starts again in {pause:g} s")
        elif code:
            note(f"node {self._hosted[place].node_id} {ended}")

    def _on_output(self, place: int, stream: IO[bytes], rest: bytearray) -> None:
        data = os.read(stream.fileno(), _READ_BYTES)
        rest += data
        if not data:
            self._selector.unregister(stream)
            stream.close()
        *lines, last = bytes(rest).split(b"\n")
        rest[:] = last
        if rest and (not data or len(rest) > _LINE_BYTES_MAX):
            lines.append(bytes(rest))
            rest.clear()
        for line in lines:
            self._on_line(place, line.decode(errors="replace"))

    def _on_line(self, place: int, line: str) -> None:
        if line.startswith(_READY):
            self._ready[place] = line.removeprefix(_READY)
            was_ready = self._machine.was_ready
            self._machine.on_ready(place)
            if was_ready:
                note(f"node {self._hosted[place].node_id} is ready again")
            elif self._machine.was_ready:
                self._announce()
        else:
            print(name_line(line, self._hosted[place].node_id), file=sys.stderr, flush=True)

    def _announce(self) -> None:
        """Print one line in the form of a single broker's, with the addresses of all processes."""
        lines = [self._ready[place] for place in range(len(self._hosted))]
        addresses = ",".join(line.split("  ", 1)[0] for line in lines)
        cluster = lines[0].split("  cluster=", 1)[1].split(" ", 1)[0]
        nodes = ",".join(str(process.node_id) for process in self._hosted)
        data = ",".join(dict.fromkeys(str(Path(path).parent) for each in self._hosted for path in each.log_dirs))
        took_ms = round((time.monotonic() - self._began) * 1000)
        print(f"{_READY}{addresses}  cluster={cluster} nodes={nodes} data={data} (started in {took_ms} ms)", flush=True)


def name_line(line: str, node_id: int) -> str:
    """A log line with the node id: `node 2: ...`, or as the first field of a JSON object."""
    if line.startswith('{"'):
        return f'{{"server": {node_id}, {line[1:]}'
    return f"node {node_id}: {line}"


def url_of_process(url: str, place: int) -> str:
    """The URL of a process's metrics: the port of the first process plus the number of the process."""
    scheme, separator, rest = url.partition("://")
    address, slash, path = rest.partition("/")
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or port == "0":
        return url
    return f"{scheme}{separator}{host}:{int(port) + place}{slash}{path}"


def file_of_process(path: str, node_id: int) -> str:
    """The log file of a process: the id of its node is added to the name, before the ending."""
    file = Path(path)
    return str(file.with_name(f"{file.stem}-{node_id}{file.suffix}"))
