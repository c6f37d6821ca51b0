"""Shell: `barnabas schemas`: the subjects and schemas of a schema registry, Barnabas' or Confluent's."""

from __future__ import annotations

import difflib
import json as json_codec
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.completing import subjects as complete_subjects
from barnabas.cli.options import CommandConfig, DryRun, Json, Yes, noun
from barnabas.cli.output import EXIT_FAILED, EXIT_USAGE, confirm, fail, note, print_json, print_table
from barnabas.cli.records.registries import RegistryUrl, run_registry

if TYPE_CHECKING:
    from barnabas.registry.client import AsyncRegistryClient
    from barnabas.registry.values import RegisteredSchema, Schema

app = noun(
    "Schemas: the subjects of a schema registry and their versions. A topic's records have the subjects TOPIC-value "
    "and TOPIC-key."
)

Subject = Annotated[
    str,
    typer.Argument(help="The subject, for example orders-value.", metavar="SUBJECT", autocompletion=complete_subjects),
]
File = Annotated[str, typer.Argument(help="A file with the schema, or - for standard input.", metavar="FILE")]
Type = Annotated[
    str | None,
    typer.Option("--type", "-t", help="AVRO, JSON or PROTOBUF. Default: by the file's name (.avsc, .proto)."),
]
References = Annotated[
    list[str] | None,
    typer.Option("--reference", "-r", metavar="NAME=SUBJECT:VERSION", help="A schema that it refers to; repeatable."),
]
_TYPES = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}


@app.command("list")
def list_subjects(
    prefix: Annotated[str, typer.Option("--prefix", help="Only subjects that begin with this text.")] = "",
    deleted: Annotated[bool, typer.Option("--deleted", help="Include deleted subjects.")] = False,
    registry: RegistryUrl = None,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """List the subjects with their newest version.

    Example: `barnabas schemas list`
    """

    async def command(client: AsyncRegistryClient) -> list[dict[str, Any]]:
        rows = []
        for name in await client.subjects(prefix or ":*:", deleted=deleted):
            versions = await client.versions(name, deleted=deleted)
            newest = await client.version(name, versions[-1], deleted=deleted)
            rows.append({"subject": name, "versions": versions, "id": newest.id, "type": newest.schema.type.value})
        return rows

    rows = run_registry(registry, command_config, command)
    if json:
        print_json(rows)
    else:
        print_table(
            ["SUBJECT", "TYPE", "VERSIONS", "NEWEST ID>"],
            [(r["subject"], r["type"], r["versions"], r["id"]) for r in rows],
            empty="no subjects",
        )


@app.command()
def show(
    subject: Subject,
    version: Annotated[int | None, typer.Option("--version", "-v", help="Default: the newest.")] = None,
    registry: RegistryUrl = None,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Print a schema.

    Example: `barnabas schemas show orders-value > order.avsc`
    """

    async def command(client: AsyncRegistryClient) -> dict[str, Any]:
        found = await _version(client, subject, version)
        return {
            "subject": subject, "version": found.version, "id": found.id, "type": found.schema.type.value,
            "references": [reference.to_json() for reference in found.schema.references],
            "compatibility": (await client.compatibility(subject)).value, "schema": _pretty(found.schema),
        }  # fmt: skip

    found = run_registry(registry, command_config, command)
    if json:
        print_json(found)
        return
    note(
        f"{subject} version {found['version']}: id {found['id']}, {found['type']}, compatibility "
        f"{found['compatibility']}" + "".join(f", refers to {r['subject']}:{r['version']}" for r in found["references"])
    )
    sys.stdout.write(found["schema"] + "\n")


@app.command()
def register(
    subject: Subject,
    file: File,
    schema_type: Type = None,
    reference: References = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Ignore differences that mean nothing.")] = False,
    dry_run: DryRun = False,
    registry: RegistryUrl = None,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Register a schema as a new version. Nothing happens if the subject has it already.

    Example: `barnabas schemas register orders-value order.avsc`
    """
    schema = _read(file, schema_type, reference)

    async def command(client: AsyncRegistryClient) -> RegisteredSchema | list[str]:
        if dry_run:
            return await _problems(client, subject, schema, normalize=normalize)
        return await client.register(subject, schema, normalize=normalize)

    done = run_registry(registry, command_config, command)
    if isinstance(done, list):
        _report(subject, done, json=json)
    elif json:
        print_json({"subject": subject, "version": done.version, "id": done.id})
    else:
        note(f"{subject} has version {done.version} with id {done.id}")


@app.command()
def check(
    subject: Subject,
    file: File,
    schema_type: Type = None,
    reference: References = None,
    registry: RegistryUrl = None,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Check whether a schema is compatible with a subject. Exit code 1 if it is not.

    Example: `barnabas schemas check orders-value order.avsc`
    """
    schema = _read(file, schema_type, reference)
    problems = run_registry(
        registry, command_config, lambda client: _problems(client, subject, schema, normalize=False)
    )
    _report(subject, problems, json=json)


@app.command()
def diff(
    subject: Subject,
    old: Annotated[int | None, typer.Option("--from", help="Default: the version before --to.")] = None,
    new: Annotated[int | None, typer.Option("--to", help="Default: the newest version.")] = None,
    registry: RegistryUrl = None,
    command_config: CommandConfig = None,
) -> None:
    """Print the difference between two versions.

    Example: `barnabas schemas diff orders-value --from 1 --to 3`
    """

    async def command(client: AsyncRegistryClient) -> tuple[RegisteredSchema, RegisteredSchema]:
        right = await _version(client, subject, new)
        earlier = [version for version in await client.versions(subject) if version < right.version]
        if old is None and not earlier:
            fail(f"{subject} has no version before {right.version}")
        return await client.version(subject, earlier[-1] if old is None else old), right

    left, right = run_registry(registry, command_config, command)
    before, after = ((_pretty(one.schema) + "\n").splitlines(keepends=True) for one in (left, right))
    names = [f"{subject} version {one.version}" for one in (left, right)]
    sys.stdout.writelines(difflib.unified_diff(before, after, names[0], names[1]))


@app.command()
def compatibility(
    subject: Annotated[
        str | None,
        typer.Argument(help="Default: the whole registry.", metavar="SUBJECT", autocompletion=complete_subjects),
    ] = None,
    level: Annotated[
        str | None, typer.Option("--set", metavar="LEVEL", help="BACKWARD, FORWARD, FULL, each also _TRANSITIVE, NONE.")
    ] = None,
    inherit: Annotated[bool, typer.Option("--inherit", help="Remove the subject's own level.")] = False,
    registry: RegistryUrl = None,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Show or change which changes of a subject are allowed.

    Example: `barnabas schemas compatibility orders-value --set FULL`
    """
    if inherit and (subject is None or level is not None):
        fail("--inherit needs a SUBJECT, and no --set", EXIT_USAGE)

    async def command(client: AsyncRegistryClient) -> str:
        if level is not None:
            await client.set_compatibility(level.upper(), subject)
        elif inherit and subject is not None:
            await client.delete_compatibility(subject)
        return (await client.compatibility(subject)).value

    found = run_registry(registry, command_config, command)
    if json:
        print_json({"subject": subject, "compatibility": found})
    else:
        print_table(["SUBJECT", "COMPATIBILITY"], [(subject or "(all without their own)", found)])


@app.command()
def delete(
    subject: Subject,
    version: Annotated[int | None, typer.Option("--version", "-v", help="Only this version.")] = None,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="Remove what was deleted before; its ids cannot be read any more.")
    ] = False,
    yes: Yes = False,
    registry: RegistryUrl = None,
    command_config: CommandConfig = None,
) -> None:
    """Delete a subject, or one version. Records that were written with it can still be read until `--permanent`.

    Example: `barnabas schemas delete orders-value --version 2 --yes`
    """
    what = subject if version is None else f"version {version} of {subject}"
    confirm(yes, f"delete {what}{' for ever: records with its ids become unreadable' if permanent else ''}?")

    async def command(client: AsyncRegistryClient) -> list[int]:
        if version is not None:
            return [await client.delete_version(subject, version, permanent=permanent)]
        return await client.delete_subject(subject, permanent=permanent)

    gone = run_registry(registry, command_config, command)
    note(f"deleted {subject}: versions {', '.join(map(str, gone))}")


async def _version(client: AsyncRegistryClient, subject: str, version: int | None) -> RegisteredSchema:
    return await (client.latest(subject) if version is None else client.version(subject, version))


async def _problems(client: AsyncRegistryClient, subject: str, schema: Schema, *, normalize: bool) -> list[str]:
    from barnabas.registry.errors import Code, RegistryError

    try:
        return await client.problems(subject, schema, normalize=normalize)
    except RegistryError as error:
        if error.code in (Code.SUBJECT_NOT_FOUND, Code.VERSION_NOT_FOUND):
            return []  # a first version is compatible
        raise


def _report(subject: str, problems: list[str], *, json: bool) -> None:
    if json:
        print_json({"subject": subject, "compatible": not problems, "problems": problems})
    elif problems:
        for problem in problems:
            sys.stdout.write(problem + "\n")
        note(f"the schema is not compatible with {subject}")
    else:
        note(f"the schema is compatible with {subject}")
    if problems:
        raise SystemExit(EXIT_FAILED)


def _read(file: str, schema_type: str | None, references: list[str] | None) -> Schema:
    from barnabas.registry.values import Reference, Schema, SchemaType

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}", EXIT_USAGE)
    kind = (schema_type or _TYPES.get(Path(file).suffix, "AVRO")).upper()
    if kind not in SchemaType.__members__:
        fail(f"--type must be AVRO, JSON or PROTOBUF, not {schema_type!r}", EXIT_USAGE)
    found = []
    for reference in references or []:
        name, equals, target = reference.partition("=")
        subject, colon, version = target.rpartition(":")
        if not (equals and colon and version.isdecimal()):
            fail(f"--reference {reference}: write NAME=SUBJECT:VERSION", EXIT_USAGE)
        found.append(Reference(name, subject, int(version)))
    return Schema(text, SchemaType[kind], tuple(found))


def _pretty(schema: Schema) -> str:
    """The text with one field in a line, if it is JSON."""
    try:
        return json_codec.dumps(json_codec.loads(schema.text), indent=2, ensure_ascii=False)
    except ValueError:
        return schema.text.rstrip("\n")
