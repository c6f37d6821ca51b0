"""Shell: `barnabas acls`: who may do what: listing, adding and removing access control entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.options import Bootstrap, CommandConfig, DryRun, Json, Yes, noun
from barnabas.cli.output import confirm, note, print_json, print_table
from barnabas.cli.security.acl_words import (
    Grant,
    bindings_of,
    consumer_grants,
    filters_of,
    pattern_type_named,
    producer_grants,
    row_of,
)
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.protocol.security.acls import AclBinding, AclBindingFilter

app = noun("Access control: which principals may do which operations on which resources.")

Topic = Annotated[list[str] | None, typer.Option(help="A topic; * is every topic. Repeatable.", metavar="NAME")]
Group = Annotated[list[str] | None, typer.Option(help="A group; * is every group. Repeatable.", metavar="NAME")]
TransactionalId = Annotated[list[str] | None, typer.Option(help="A transactional id; repeatable.", metavar="ID")]
ClusterFlag = Annotated[bool, typer.Option("--cluster", help="The cluster.")]
Principal = Annotated[list[str] | None, typer.Option(help="For example User:alice; repeatable.", metavar="TYPE:NAME")]
Host = Annotated[list[str] | None, typer.Option(help="An IP address; * is every host. Repeatable.", metavar="HOST")]
Operation = Annotated[
    list[str] | None, typer.Option(help="Read, Write, Describe, All, ...; repeatable.", metavar="NAME")
]

_COLUMNS = ["RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"]


@app.command("list")
def list_acls(
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: ClusterFlag = False,
    principal: Principal = None,
    pattern: Annotated[
        str, typer.Option(help="literal, prefixed, any, or match: whatever applies to the name.")
    ] = "any",
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """List access control entries.

    Example: `barnabas acls list --topic orders --pattern match`
    """
    grant = Grant(topic, group, transactional_id, cluster, pattern_type=pattern_type_named(pattern))
    names: list[str | None] = [*(principal or [])] or [None]
    filters = [selected._replace(principal=name) for selected in filters_of(grant) for name in names]

    async def command(admin: AsyncAdmin) -> list[AclBinding]:
        found: set[AclBinding] = set()
        for selected in filters:
            found.update(await admin.describe_acls(selected))
        return sorted(found)

    _show(run_admin(bootstrap_server, command, read_properties(command_config)), as_json=json)


@app.command()
def add(
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: ClusterFlag = False,
    principal: Principal = None,
    host: Host = None,
    operation: Operation = None,
    deny: Annotated[bool, typer.Option("--deny", help="Deny instead of allow; a denial wins.")] = False,
    producer: Annotated[bool, typer.Option("--producer", help="What a producer to the topics needs.")] = False,
    consumer: Annotated[bool, typer.Option("--consumer", help="What a consumer of the topics needs.")] = False,
    prefixed: Annotated[
        bool, typer.Option("--prefixed", help="The names are prefixes: every name that begins with them.")
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    dry_run: DryRun = False,
    command_config: CommandConfig = None,
) -> None:
    """Allow (or deny) operations. An entry that exists already stays as it is.

    Example: `barnabas acls add --principal User:alice --consumer --topic orders --group billing`, or
    `barnabas acls add --principal User:bob --operation Read --topic logs- --prefixed`
    """
    grant = Grant(
        topic,
        group,
        transactional_id,
        cluster,
        principals=principal or [],
        hosts=host or ["*"],
        operations=operation or [],
        deny=deny,
        pattern_type=pattern_type_named("prefixed" if prefixed else "literal"),
    )
    if not grant.principals:
        raise ValueError("--principal is missing, for example --principal User:alice")
    if (producer or consumer) and (operation or deny):
        raise ValueError("--producer and --consumer name the operations, and only allow")
    if producer or consumer:
        acls = [*(producer_grants(grant) if producer else ()), *(consumer_grants(grant) if consumer else ())]
    else:
        if not operation:
            raise ValueError("--operation is missing, for example --operation Read; or use --producer or --consumer")
        acls = bindings_of(grant)
    acls = sorted(set(acls))
    if not dry_run:

        async def command(admin: AsyncAdmin) -> None:
            for error in (await admin.create_acls(acls)).values():
                if error is not None:
                    raise error

        run_admin(bootstrap_server, command, read_properties(command_config))
    note("would add:" if dry_run else "added:")
    _show(acls, as_json=json)


@app.command()
def remove(
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: ClusterFlag = False,
    principal: Principal = None,
    host: Host = None,
    operation: Operation = None,
    pattern: Annotated[
        str, typer.Option(help="literal, prefixed, any, or match: whatever applies to the name.")
    ] = "literal",
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    command_config: CommandConfig = None,
) -> None:
    """Remove the entries of resources, or only those of some principals, hosts or operations.

    Example: `barnabas acls remove --topic orders --principal User:alice`
    """
    grant = Grant(
        topic,
        group,
        transactional_id,
        cluster,
        principals=principal or [],
        hosts=host or [],
        operations=operation or [],
        pattern_type=pattern_type_named(pattern),
    )
    if grant.names_nothing and not grant.principals:
        raise ValueError("name a resource (--topic, --group, --transactional-id, --cluster) or a --principal")
    filters = filters_of(grant)

    async def find(admin: AsyncAdmin) -> list[AclBinding]:
        found: set[AclBinding] = set()
        for selected in filters:
            found.update(await admin.describe_acls(selected))
        return sorted(found)

    settings = read_properties(command_config)
    found = run_admin(bootstrap_server, find, settings)
    if found and not dry_run:
        confirm(yes, f"Remove {len(found)} access control entries?")
        run_admin(bootstrap_server, lambda admin: _delete(admin, filters), settings)
    note("would remove:" if dry_run else "removed:")
    _show(found, as_json=json)


async def _delete(admin: AsyncAdmin, filters: list[AclBindingFilter]) -> None:
    from barnabas.core.errors import KafkaError

    for result in (await admin.delete_acls(filters)).values():
        if isinstance(result, KafkaError):
            raise result


def _show(acls: list[AclBinding], *, as_json: bool) -> None:
    if as_json:
        print_json([dict(zip((name.lower() for name in _COLUMNS), row_of(acl), strict=True)) for acl in acls])
    else:
        print_table(_COLUMNS, [row_of(acl) for acl in acls], empty="no access control entries")
