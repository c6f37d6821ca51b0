"""Shell: what is known about pipelines outside of the process that runs them: which ones there are, which are running,
their last progress, and which flows are to begin anew.

Local files only. The files of a pipeline are in `<storage>/_barnabas`, or beside the index if its storage is not local:

    lock         locked (flock) by the process that runs the pipeline, so that a second one is refused
    run.json     the run: process id, start, flows and their progress; replaced about once a second
    resets.json  names of flows that begin anew at the next start
    spark.log    Spark's log

The index, one small file for each pipeline that ran on this machine, is in `$XDG_STATE_HOME/barnabas/pipelines`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from barnabas.spark.pipelines.errors import AlreadyRunningError, SpecError
from barnabas.spark.pipelines.spec import SPEC_FILE_NAMES, PipelineSpec, parse_spec


@dataclass(frozen=True, slots=True)
class PipelineProject:
    """A pipeline on this machine: its spec file, and the directory of its state."""

    spec_path: Path
    spec: PipelineSpec

    @property
    def directory(self) -> Path:
        return self.spec_path.parent

    @property
    def storage(self) -> str:
        """The storage directory as Spark takes it."""
        local = self.spec.local_storage(self.directory)
        return self.spec.storage if local is None else str(local.resolve())

    @property
    def state_directory(self) -> Path:
        local = self.spec.local_storage(self.directory)
        return (index_directory() / f"{_digest(self.spec_path)}.state") if local is None else local / "_barnabas"

    @property
    def log_file(self) -> Path:
        return self.state_directory / "spark.log"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the pipeline's lock, and list the pipeline in the index. Raises AlreadyRunningError."""
        self.state_directory.mkdir(parents=True, exist_ok=True)
        with (self.state_directory / "lock").open("a") as file:
            if not _try_lock(file):
                pid = self.run().get("pid", "unknown")
                raise AlreadyRunningError(
                    f"the pipeline {self.spec.name} is running already (process {pid}); stop it with: "
                    f"barnabas pipelines stop {self.spec.name}"
                )
            entry = index_directory() / f"{_digest(self.spec_path)}.json"
            _write_json(entry, {"name": self.spec.name, "spec": str(self.spec_path.resolve())})
            yield

    @property
    def is_running(self) -> bool:
        try:
            with (self.state_directory / "lock").open("a") as file:
                return not _try_lock(file)
        except FileNotFoundError:
            return False

    # -- files -------------------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """The last run, or an empty dict."""
        return _read_json(self.state_directory / "run.json")

    def save_run(self, run: Mapping[str, Any]) -> None:
        _write_json(self.state_directory / "run.json", run)

    def resets(self) -> list[str]:
        """The flows that begin anew at the next start."""
        return list(_read_json(self.state_directory / "resets.json").get("flows", []))

    def save_resets(self, flows: Sequence[str]) -> None:
        _write_json(self.state_directory / "resets.json", {"flows": sorted(set(flows))})


def find_project(given: str | None) -> PipelineProject:
    """The pipeline that `given` names: a spec file, a directory, or the name of a pipeline that ran on this machine.
    None: the spec file in the working directory or in the nearest directory above it. Raises SpecError.
    """
    if given is None:
        here = Path.cwd()
        for directory in (here, *here.parents):
            if path := _spec_in(directory):
                return read_project(path)
        raise SpecError(
            f"there is no {SPEC_FILE_NAMES[0]} in {here} or above it; name a pipeline, its directory or its spec"
        )
    path = Path(given)
    if path.is_file():
        return read_project(path)
    if path.is_dir():
        found = _spec_in(path)
        if found is None:
            raise SpecError(f"there is no {SPEC_FILE_NAMES[0]} in {path}")
        return read_project(found)
    named = [project for project in known_projects() if project.spec.name == given]
    if len(named) == 1:
        return named[0]
    if named:
        places = ", ".join(str(project.directory) for project in named)
        raise SpecError(f"there are several pipelines {given}: {places}; name the directory")
    known = ", ".join(sorted({project.spec.name for project in known_projects()})) or "none"
    raise SpecError(f"{given} is neither a file, a directory nor a pipeline that ran on this machine (known: {known})")


def read_project(path: Path) -> PipelineProject:
    """Read a spec file. Raises SpecError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} cannot be read: {error}") from error
    return PipelineProject(path.absolute(), parse_spec(text, str(path)))


def known_projects() -> list[PipelineProject]:
    """The pipelines in the index whose spec files still exist, by name."""
    projects = []
    for entry in sorted(index_directory().glob("*.json")):
        path = Path(_read_json(entry).get("spec", ""))
        if path.is_file():
            try:
                projects.append(read_project(path))
            except SpecError:
                continue  # being edited
    return sorted(projects, key=lambda project: project.spec.name)


def index_directory() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "barnabas" / "pipelines"


def _spec_in(directory: Path) -> Path | None:
    found = [directory / name for name in SPEC_FILE_NAMES if (directory / name).is_file()]
    if len(found) > 1:
        raise SpecError(f"{directory} has both {' and '.join(SPEC_FILE_NAMES)}; remove one")
    return found[0] if found else None


def _digest(path: Path) -> str:
    return hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace the file as a whole: readers see the old or the new contents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(value, indent=1, default=str), encoding="utf-8")
    temporary.replace(path)
