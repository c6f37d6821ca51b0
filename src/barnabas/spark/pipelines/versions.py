"""Shell: the versions of a materialized view's files. A reader sees one version as a whole, also after a crash.

    <warehouse>/totals        a symbolic link to the version that counts, if the warehouse is a local directory
    <warehouse>/_totals/7     the version that counts; the catalog has this path
    <warehouse>/_totals/6     the version before it, for queries that still read it
    <warehouse>/_totals/8     a version that is being written, or was when its writer died

The link is replaced in one step. Elsewhere there is no link: readers take the path from Spark's catalog, or the
greatest number whose directory has the file `_SUCCESS`, which Spark writes last.
"""

from __future__ import annotations

from pathlib import Path

from barnabas.spark.pipelines.files import HadoopFiles, local_path


class ViewVersions:
    """The versions of one view, whose Hadoop path is `location`."""

    def __init__(self, location: str, files: HadoopFiles) -> None:
        directory, _, name = location.rstrip("/").rpartition("/")
        self._location = location.rstrip("/")
        self._root = f"{directory}/_{name}"
        self._files = files

    def begin(self) -> str:
        """The path of a new version, which does not exist yet."""
        return f"{self._root}/{max(self._files.numbers(self._root), default=0) + 1}"

    def publish(self, version: str) -> None:
        """Let the version be the one that counts, and remove those that no query needs."""
        link = local_path(self._location)
        if link is not None:
            _replace_link(link, Path(f"_{link.name}", version.rpartition("/")[2]))
        current = int(version.rpartition("/")[2])
        before = [n for n in self._files.numbers(self._root) if n < current and self._is_complete(n)]
        for number in self._files.numbers(self._root):
            if number not in (current, max(before, default=current)):
                self._files.delete(f"{self._root}/{number}")

    def delete(self) -> None:
        """Remove all versions."""
        link = local_path(self._location)
        if link is not None and link.is_symlink():
            link.unlink()
        else:
            self._files.delete(self._location)
        self._files.delete(self._root)

    def _is_complete(self, number: int) -> bool:
        return self._files.exists(f"{self._root}/{number}/_SUCCESS")


def _replace_link(link: Path, target: Path) -> None:
    """Let `link` point to `target`, in one step unless `link` is a directory, as it was before there were versions."""
    temporary = link.with_name(f"_{link.name}.link")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target, target_is_directory=True)
    if link.is_dir() and not link.is_symlink():
        link.rename(link.with_name(f"_{link.name}") / "0")
    temporary.replace(link)
