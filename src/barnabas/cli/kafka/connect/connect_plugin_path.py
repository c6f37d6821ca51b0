"""Shell: `connect-plugin-path`: lists the plugins of this worker, and which plugins of a Java worker they replace.

`list` prints the columns of Kafka's tool. The worker's own plugins have the location `barnabas`. Plugins in the jars of
a plugin path are known by their manifests; such a plugin is loadable if the worker has one of the same class name.
"""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from barnabas.cli.kafka.arguments import Parser, emit
from barnabas.cli.output import EXIT_USAGE, fail
from barnabas.cli.session import read_properties

COLUMNS: Final = (
    "pluginName", "firstAlias", "secondAlias", "pluginVersion", "pluginType", "isLoadable", "hasManifest",
    "pluginLocation",
)  # fmt: skip
MANIFESTS: Final = {
    "org.apache.kafka.connect.source.SourceConnector": "source",
    "org.apache.kafka.connect.sink.SinkConnector": "sink",
    "org.apache.kafka.connect.storage.Converter": "converter",
    "org.apache.kafka.connect.storage.HeaderConverter": "header_converter",
    "org.apache.kafka.connect.transforms.Transformation": "transformation",
    "org.apache.kafka.connect.transforms.predicates.Predicate": "predicate",
    "org.apache.kafka.common.config.provider.ConfigProvider": "configprovider",
    "org.apache.kafka.connect.rest.ConnectRestExtension": "rest_extension",
}
"""The kinds of plugins by the names of their manifests in META-INF/services."""
_SUFFIXES: Final = ("Connector", "Converter", "Transformation")
_NO_ALIAS: Final = "N/A"
_LOCATION: Final = "barnabas"


@dataclass(frozen=True)
class Plugin:
    name: str
    kind: str
    version: str
    location: str
    loadable: bool
    has_manifest: bool

    def row(self) -> str:
        aliases = [*_aliases(self.name), _NO_ALIAS, _NO_ALIAS][:2]
        flags = ["true" if flag else "false" for flag in (self.loadable, self.has_manifest)]
        return "\t".join([self.name, *aliases, self.version, self.kind, *flags, self.location])


def build_parser() -> Parser:
    parser = Parser("connect-plugin-path", "Manage plugins on the Connect plugin path", bootstrap=False)
    parser.add_argument("command", choices=("list", "sync-manifests"), help="sync-manifests is not needed here")
    parser.add_argument("--plugin-location", action="append", default=[], help="a jar file or a directory of them")
    parser.add_argument("--plugin-path", action="append", default=[], help="directories, separated by commas")
    parser.add_argument("--worker-config", action="append", default=[], help="a worker's file with plugin.path")
    parser.add_argument("--dry-run", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--keep-not-found", action="store_true", help=argparse.SUPPRESS)
    return parser


def main() -> None:
    options = build_parser().parse_args()
    if options.command == "sync-manifests":
        _refuse_manifests()
    locations = [Path(one) for one in options.plugin_location]
    paths = options.plugin_path + [_plugin_path(file) for file in options.worker_config]
    for folder in (Path(one.strip()) for path in paths for one in path.split(",") if one.strip()):
        if not folder.is_dir():
            fail(f"{folder} is not a directory: a plugin path has directories of plugins.")
        locations += sorted(one for one in folder.iterdir() if one.is_dir() or one.suffix == ".jar")
    own = _own_plugins()
    names = {plugin.name for plugin in own}
    try:
        found = [plugin for location in locations for plugin in plugins_of(location, names)]
    except (OSError, zipfile.BadZipFile) as error:
        fail(f"A plugin cannot be read: {error}")
    emit("\t".join(COLUMNS))
    for plugin in [*own, *found]:
        emit(plugin.row())
    emit("")
    loadable = sum(plugin.loadable for plugin in [*own, *found])
    emit(f"Total plugins:      \t{len(own) + len(found)}")
    emit(f"Loadable plugins:   \t{loadable}")
    emit(f"Compatible plugins: \t{loadable}")


def _refuse_manifests() -> NoReturn:
    fail(
        "sync-manifests is not supported: this worker's plugins are Python and need no manifests, and it runs no "
        "plugin of a jar. `connect-plugin-path list --plugin-path DIR` shows which plugins of the jars it has itself."
    )


def _plugin_path(file: str) -> str:
    return str(read_properties(file).get("plugin.path", ""))


def _own_plugins() -> Sequence[Plugin]:
    try:
        from barnabas.spark.connectors.connect.plans.planner import WorkerPlanner
    except ModuleNotFoundError as error:
        fail(f"Connect needs {error.name}: pip install 'barnabas[connectors]'", EXIT_USAGE)
    rows = [(one.class_name, one.kind, one.version) for one in WorkerPlanner({}, {}).plugins()]
    return [Plugin(name, kind, version, _LOCATION, True, True) for name, kind, version in rows]


def plugins_of(location: Path, own: set[str]) -> Iterator[Plugin]:
    """The plugins that the manifests of the jars in `location` name. Raises OSError or BadZipFile."""
    for jar in [location] if location.is_file() else sorted(location.rglob("*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for manifest, kind in MANIFESTS.items():
                if f"META-INF/services/{manifest}" in archive.namelist():
                    text = archive.read(f"META-INF/services/{manifest}").decode()
                    for name in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
                        yield Plugin(name, kind, "undefined", str(location), name in own, True)


def _aliases(name: str) -> list[str]:
    """The class's simple name, and the name without the word for its kind, as in Kafka."""
    simple = name.rpartition(".")[2].partition("$")[0]
    pruned = next((simple.removesuffix(word) for word in _SUFFIXES if simple.endswith(word)), simple)
    return list(dict.fromkeys([simple, pruned]))
