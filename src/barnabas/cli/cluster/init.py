"""Shell: `barnabas cluster init` writes the settings of a new cluster, and `barnabas cluster certificates` replaces its
certificates. docs/SECURITY.md shows both.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from barnabas.cli.cluster.up import PORT_MAX, Controllers, replication_settings
from barnabas.cli.options import Json
from barnabas.cli.output import EXIT_FAILED, EXIT_USAGE, fail, note, print_json, print_table
from barnabas.cli.session import parse_settings

if TYPE_CHECKING:
    from barnabas.cli.cluster.certificates import Certified
    from barnabas.cli.cluster.files import ClusterPlan

_AUTHORITY_DAYS: Final = 3_650
_NODE_DAYS: Final = 365
_BROKERS: Final = 3
_PASSWORD_BYTES: Final = 24
_PRIVATE_FILE: Final = 0o600
_PRIVATE_FOLDER: Final = 0o700

Folder = Annotated[Path, typer.Argument(help="The folder of the cluster.", metavar="FOLDER")]
Days = Annotated[
    int, typer.Option("--days", min=1, max=_AUTHORITY_DAYS, help="How long nodes' certificates are valid.")
]


def init(
    folder: Folder,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="Make certificates, an administrator with a random password, and settings with TLS, SASL and ACLs.",
        ),
    ] = False,
    brokers: Annotated[
        int | None,
        typer.Option(
            "--brokers", "-n", min=1, max=100, help="The number of brokers. Default: 3, or one for each host."
        ),
    ] = None,
    controllers: Controllers = 0,
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="HOST",
            help="The host of a node, by the name that clients use; once for each node. Default: this machine.",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            min=0,
            max=PORT_MAX,
            help="The port for clients of the first node on each host; further nodes use the next ports. The listeners "
            "for other brokers are 5,000 above, those for controllers 10,000. 0: any free port.",
        ),
    ] = 9092,
    days: Days = _NODE_DAYS,
    settings: Annotated[
        list[str] | None, typer.Option("-c", metavar="KEY=VALUE", help="A setting for every node; may be repeated.")
    ] = None,
) -> None:
    """Write the settings of a new cluster into a folder. `barnabas cluster up --data-dir FOLDER` runs the cluster.

    With --secure, nodes authenticate to each other by certificates of an authority that is made for this cluster, and
    clients by user and password over TLS. The folder also gets the settings of the administrator's clients. All files
    are readable by their owner only, and files that exist are never overwritten.

    Example: `barnabas cluster init --secure cluster`
    """
    from barnabas.cli.cluster.files import ClusterPlan
    from barnabas.core.config import ConfigError

    brokers = brokers or max(len(hosts or ()) - controllers, 1 if hosts else _BROKERS)
    given = {**parse_settings(replication_settings(brokers)), **parse_settings(settings)}
    plan = ClusterPlan(
        folder=Path(os.path.abspath(folder)),  # noqa: PTH100 - resolve() would follow links
        brokers=brokers,
        controllers=controllers,
        hosts=tuple(hosts or ()),
        port=port or _free_port(brokers + controllers),
        secure=secure,
        settings=tuple(given.items()),
    )
    try:
        files = _files(plan, days)
        _write_new(plan.folder, files)
    except (ConfigError, OSError) as error:
        fail(str(error), EXIT_USAGE)
    note(f"{len(files)} files are written to {folder}. Run the cluster on this machine with:")
    note(f"  barnabas cluster up --data-dir {folder}")
    note(f"  barnabas cluster describe --command-config {folder / 'client.properties'}")
    if plan.hosts:
        files_of = "ca.pem, first-users and the node's own two files" if secure else "the node's own file"
        users = f'BARNABAS_ADD_SCRAM="$(cat {folder / "first-users"})" ' if secure else ""
        note(f"On each host, with {files_of} at the same places in {plan.folder}:")
        note(f"  {users}barnabas serve --config {folder / 'nodes' / 'node-ID.properties'}")


def _files(plan: ClusterPlan, days: int) -> dict[str, str]:
    """The files to write: their paths in the folder and their texts. Raises ConfigError."""
    from barnabas.cli.cluster import files as cluster_files

    nodes = cluster_files.plan_nodes(plan)
    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    files = {
        "client.properties": cluster_files.settings_text(
            cluster_files.client_settings(plan, nodes, password), "Clients: --command-config, and Java clients."
        ),
        "librdkafka.properties": cluster_files.settings_text(
            cluster_files.librdkafka_settings(plan, nodes, password), "Clients that use librdkafka."
        ),
    }
    for node in nodes:
        settings = cluster_files.node_settings(plan, nodes, node)
        text = cluster_files.settings_text(settings, f"barnabas serve --config nodes/{node.name}.properties")
        files[f"nodes/{node.name}.properties"] = text
    if not plan.secure:
        return files
    from barnabas.cli.cluster.certificates import certify_node, make_authority

    authority = make_authority(f"Barnabas cluster {plan.folder.name}", _AUTHORITY_DAYS)
    files |= {
        "ca.pem": authority.certificate,
        "authority/ca-1.pem": authority.certificate,
        "authority/ca-1.key": authority.key,
        "first-users": f"{cluster_files.MECHANISM}=[name={cluster_files.ADMIN},password={password}]\n",
    }
    for node in nodes:
        files[f"nodes/{node.name}.pem"] = _store(certify_node(authority, node.name, [node.host], days))
    return files


def certificates(
    folder: Folder,
    add_authority: Annotated[
        bool, typer.Option("--add-authority", help="Make another authority, and trust it besides the present ones.")
    ] = False,
    renew: Annotated[
        bool, typer.Option("--renew", help="Give every node a new key and a new certificate of the newest authority.")
    ] = False,
    drop_authorities: Annotated[
        bool, typer.Option("--drop-authorities", help="Trust the newest authority only.")
    ] = False,
    days: Days = _NODE_DAYS,
    json: Json = False,
) -> None:
    """Show the certificates of a cluster that `barnabas cluster init --secure` has made, or replace them.

    Nodes load changed files within a second, without a restart, and use them for new connections. To replace the
    authority, give the three options one after the other, and copy the changed files to all hosts before the next one.

    Example: `barnabas cluster certificates cluster --renew`
    """
    if add_authority + renew + drop_authorities > 1:
        fail("give one of --add-authority, --renew and --drop-authorities at a time", EXIT_USAGE)
    try:
        if add_authority:
            _add_authority(folder)
        elif renew:
            _renew(folder, days)
        elif drop_authorities:
            _drop_authorities(folder)
        rows = _known(folder)
    except (OSError, ValueError) as error:
        fail(f"{folder} is not a folder of `barnabas cluster init --secure`: {error}", EXIT_FAILED)
    if json:
        print_json(rows)
    else:
        table = [(row["file"], row["subject"], row["issuer"], row["hosts"], row["expires"]) for row in rows]
        print_table(["FILE", "SUBJECT", "ISSUER", "HOSTS", "EXPIRES"], table)


def _add_authority(folder: Path) -> None:
    from barnabas.cli.cluster.certificates import make_authority, split_certificates

    number = max(_authority_numbers(folder)) + 1
    made = make_authority(f"Barnabas cluster {folder.absolute().name} {number}", _AUTHORITY_DAYS)
    _write_new(folder, {f"authority/ca-{number}.pem": made.certificate, f"authority/ca-{number}.key": made.key})
    trusted = split_certificates((folder / "ca.pem").read_text())
    _replace(folder / "ca.pem", "".join([made.certificate, *trusted]))


def _renew(folder: Path, days: int) -> None:
    from barnabas.cli.cluster.certificates import Certified, certify_again, split_certificates

    number = max(_authority_numbers(folder))
    stem = folder / "authority" / f"ca-{number}"
    authority = Certified(stem.with_suffix(".pem").read_text(), stem.with_suffix(".key").read_text())
    if authority.certificate not in split_certificates((folder / "ca.pem").read_text()):
        fail(f"ca.pem does not contain authority/ca-{number}.pem, so nodes would not trust the new certificates")
    for path in sorted((folder / "nodes").glob("node-*.pem")):
        own = path.read_text()
        certificate = own[own.index("-----BEGIN CERTIFICATE-----") :]
        _replace(path, _store(certify_again(authority, certificate, days)))


def _drop_authorities(folder: Path) -> None:
    from barnabas.cli.cluster.certificates import facts_of

    newest = (folder / "authority" / f"ca-{max(_authority_numbers(folder))}.pem").read_text()
    (authority,) = facts_of(newest)
    for path in sorted((folder / "nodes").glob("node-*.pem")):
        if facts_of(path.read_text())[0].issuer != authority.subject:
            fail(f"{path} is of another authority, and would not be trusted any more: first give --renew")
    _replace(folder / "ca.pem", newest)


def _known(folder: Path) -> list[dict[str, object]]:
    from barnabas.cli.cluster.certificates import facts_of

    return [
        {"file": str(path.relative_to(folder)), **facts._asdict(), "expires": facts.expires.isoformat(" ", "minutes")}
        for path in (folder / "ca.pem", *sorted((folder / "nodes").glob("node-*.pem")))
        for facts in facts_of(path.read_text())
    ]


def _authority_numbers(folder: Path) -> list[int]:
    """The numbers of the authorities. Raises ValueError if there is none."""
    found = [int(path.stem.removeprefix("ca-")) for path in (folder / "authority").glob("ca-*.pem")]
    if not found:
        raise ValueError("authority/ca-1.pem is missing")
    return found


def _store(certified: Certified) -> str:
    """The content of a PEM key store: the key and its certificate in one file, which is replaced as a whole."""
    return certified.key + certified.certificate


def _write_new(folder: Path, files: Mapping[str, str]) -> None:
    """Write files that only their owner can read. Raises FileExistsError, and writes nothing, if one exists."""
    for name in files:
        if os.path.lexists(folder / name):
            raise FileExistsError(f"{folder / name} exists, and files are never overwritten. Choose another folder.")
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        _write(path, text)


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor, not a path
        file.write(text)


def _replace(path: Path, text: str) -> None:
    """Replace a file as a whole: a node that reads it sees the old content or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)  # left by a command that was killed
    _write(fresh, text)
    fresh.replace(path)


def _free_port(nodes: int) -> int:
    """A port for clients such that the ports of all listeners of so many nodes are free at present."""
    from barnabas.cli.cluster.files import CONTROLLER_PORT, NODES_PORT

    for first in random.sample(range(10_000, 15_000 - nodes), 200):
        try:
            for distance in (0, NODES_PORT, CONTROLLER_PORT):
                for place in range(nodes):
                    with socket.socket() as sock:
                        sock.bind(("127.0.0.1", first + distance + place))
        except OSError:
            continue
        return first
    return fail(f"no ports for {nodes} nodes are free; choose one with --port", EXIT_FAILED)
