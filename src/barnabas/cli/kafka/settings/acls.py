"""Shell: `kafka-acls`: lists, adds and removes ACLs, with the flags and the output of Kafka's AclCommand."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from barnabas.cli.kafka.arguments import Parser, client_settings, emit
from barnabas.cli.security.acl_words import (
    Grant,
    bindings_of,
    consumer_grants,
    pattern_type_named,
    principal_named,
    producer_grants,
)
from barnabas.cli.session import run_admin
from barnabas.protocol.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    AclResourceType,
    PatternType,
    known,
)
from barnabas.protocol.security.operations import AclOperation

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin

_NO_RESOURCE = (
    "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or --delegation-token "
    "<Delegation Token ID>"
)
Resource = tuple[int, str | None, int]
"""The type, the name and the pattern type of a resource pattern, or of a filter."""


def build_parser() -> Parser:
    parser = Parser("kafka-acls", "Manage the access control lists of a cluster.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--add", action="store_true", help="add ACLs")
    action.add_argument("--remove", action="store_true", help="remove ACLs")
    action.add_argument("--list", action="store_true", help="list ACLs")
    for flag, text in (
        ("--topic", "a topic, or '*'"),
        ("--group", "a consumer group, or '*'"),
        ("--transactional-id", "a transactional id, or '*'"),
        ("--delegation-token", "a delegation token, or '*'"),
        ("--user-principal", "a user as a resource, for CreateTokens and DescribeTokens"),
        ("--operation", "the operation; default All"),
        ("--allow-principal", "who is allowed, Type:name"),
        ("--deny-principal", "who is denied, Type:name"),
        ("--allow-host", "hosts of the allowed principals; default '*'"),
        ("--deny-host", "hosts of the denied principals; default '*'"),
        ("--principal", "with --list: only the ACLs of this principal"),
    ):
        parser.add_argument(flag, action="append", metavar=flag[2:].upper().replace("-", "_"), help=text)
    parser.add_argument("--cluster", action="store_true", help="the cluster")
    parser.add_argument("--resource-pattern-type", default="literal", metavar="any|match|literal|prefixed")
    parser.add_argument("--producer", action="store_true", help="allow Write, Describe and Create on the topics")
    parser.add_argument("--consumer", action="store_true", help="allow Read and Describe on topics, Read on groups")
    parser.add_argument("--idempotent", action="store_true", help="with --producer: IdempotentWrite on the cluster")
    parser.add_argument("--force", action="store_true", help="do not ask")
    parser.refuse("--bootstrap-controller", why="use --bootstrap-server with the address of a broker")
    parser.refuse("--authorizer", "--authorizer-properties", why="Kafka removed it in version 4")
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    try:
        _check(options)
        pattern = pattern_type_named(options.resource_pattern_type)
        if options.list:
            filters = _resources(options, pattern)
            principals = [principal_named(name) for name in options.principal or ()]
        else:
            wanted = _acls_by_resource(options, pattern)
    except ValueError as error:
        parser.error(str(error))
    settings = client_settings(options)
    if options.list:
        run_admin(options.bootstrap_server, lambda admin: _list(admin, filters, principals), settings)
    elif options.add:
        run_admin(options.bootstrap_server, lambda admin: _add(admin, wanted), settings)
    else:
        confirmed = {resource: acls for resource, acls in wanted.items() if options.force or _confirm(resource, acls)}
        run_admin(options.bootstrap_server, lambda admin: _remove(admin, confirmed), settings)


def _check(options: argparse.Namespace) -> None:
    """The combinations that Kafka's tool refuses. Raises ValueError."""
    if options.list and (options.producer or options.consumer or options.allow_principal or options.deny_principal):
        raise ValueError("--list cannot be used with --producer, --consumer, --allow-principal or --deny-principal")
    if options.principal and not options.list:
        raise ValueError("The --principal option is only available if --list is set")
    roles = options.producer or options.consumer
    if roles and (options.operation or options.deny_principal or options.deny_host):
        raise ValueError("--producer and --consumer cannot be used with --operation, --deny-principal or --deny-host")
    if options.producer and not options.topic:
        raise ValueError("With --producer you must specify a --topic")
    if options.idempotent and not options.producer:
        raise ValueError("The --idempotent option is only available if --producer is set")
    alone = options.consumer and not options.producer
    if options.consumer and (
        not options.topic or not options.group or (alone and (options.cluster or options.transactional_id))
    ):
        raise ValueError(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option "
            "should be specified."
        )


def _grant(options: argparse.Namespace, pattern: PatternType, *, deny: bool) -> Grant:
    principals = options.deny_principal if deny else options.allow_principal
    hosts = options.deny_host if deny else options.allow_host
    return Grant(
        options.topic,
        options.group,
        options.transactional_id,
        options.cluster and pattern is PatternType.LITERAL,
        options.delegation_token,
        options.user_principal,
        principals=principals or [],
        hosts=hosts or ["*"],
        operations=options.operation or ["All"],
        deny=deny,
        pattern_type=pattern,
    )


def _resources(options: argparse.Namespace, pattern: PatternType) -> list[Resource]:
    """The resources that the options name; that of everything if they name none."""
    resources = _grant(options, pattern, deny=False).resources
    return [
        (kind, name, PatternType.LITERAL if kind is AclResourceType.CLUSTER else pattern) for kind, name in resources
    ] or [(AclResourceType.ANY, None, PatternType.ANY)]


def _acls_by_resource(options: argparse.Namespace, pattern: PatternType) -> dict[Resource, list[AclBinding]]:
    """The ACLs of the options, by resource. With --remove a resource without ACLs stands for all its ACLs. Raises
    ValueError."""
    specific = pattern in (PatternType.LITERAL, PatternType.PREFIXED)
    if options.add and not specific:
        raise ValueError(f"A '--resource-pattern-type' value of '{pattern.name}' is not valid when adding acls.")
    # A filter has the same ACLs whatever its pattern type is.
    allow = _grant(options, pattern if specific else PatternType.LITERAL, deny=False)
    deny = _grant(options, pattern if specific else PatternType.LITERAL, deny=True)
    if allow.names_nothing and not options.idempotent:
        raise ValueError(_NO_RESOURCE)
    if options.producer or options.consumer:
        acls = [
            *(producer_grants(allow, idempotent=options.idempotent) if options.producer else ()),
            *(consumer_grants(allow) if options.consumer else ()),
        ]
    else:
        acls = [*bindings_of(allow), *bindings_of(deny)]
    if options.add and not acls:
        raise ValueError("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    found: dict[Resource, list[AclBinding]] = {}
    for acl in dict.fromkeys(acls):
        is_cluster = acl.resource_type == AclResourceType.CLUSTER
        found.setdefault(
            (acl.resource_type, acl.resource_name, PatternType.LITERAL if is_cluster else pattern), []
        ).append(acl)
    return found or {resource: [] for resource in _resources(options, pattern)}


def _confirm(resource: Resource, acls: list[AclBinding]) -> bool:
    if acls:
        lines = "\n".join(f"\t{_entry(acl)}" for acl in acls)
        emit(f"Are you sure you want to remove ACLs: \n {lines} \n from resource filter `{_pattern(resource)}`? (y/n)")
    else:
        emit(f"Are you sure you want to delete all ACLs for resource filter `{_pattern(resource)}`? (y/n)")
    return sys.stdin.readline().strip().lower() == "y"


async def _list(admin: AsyncAdmin, filters: list[Resource], principals: list[str]) -> None:
    found: dict[AclBinding, None] = {}
    for kind, name, pattern in filters:
        found.update(dict.fromkeys(await admin.describe_acls(AclBindingFilter(kind, name, pattern))))
    if not principals:
        _print(list(found))
    for principal in principals:
        emit(f"ACLs for principal `{principal}`")
        _print([acl for acl in found if acl.principal == principal])


def _print(acls: list[AclBinding]) -> None:
    by_resource: dict[Resource, list[AclBinding]] = {}
    for acl in acls:
        by_resource.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(acl)
    for resource, entries in by_resource.items():
        lines = "\n".join(f"\t{_entry(acl)}" for acl in entries)
        emit(f"Current ACLs for resource `{_pattern(resource)}`: \n {lines} \n")


async def _add(admin: AsyncAdmin, wanted: dict[Resource, list[AclBinding]]) -> None:
    for resource, acls in wanted.items():
        lines = "\n".join(f"\t{_entry(acl)}" for acl in acls)
        emit(f"Adding ACLs for resource `{_pattern(resource)}`: \n {lines} \n")
        for error in (await admin.create_acls(acls)).values():
            if error is not None:
                raise error


async def _remove(admin: AsyncAdmin, wanted: dict[Resource, list[AclBinding]]) -> None:
    from barnabas.core.errors import KafkaError

    for (kind, name, pattern), acls in wanted.items():
        everything = AclBindingFilter(kind, name, pattern)
        filters = [
            everything._replace(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission_type
            )
            for acl in acls
        ] or [everything]
        for result in (await admin.delete_acls(filters)).values():
            if isinstance(result, KafkaError):
                raise result


def _pattern(resource: Resource) -> str:
    """As Java's `ResourcePattern.toString`."""
    kind, name, pattern = resource
    shown = CLUSTER_NAME if kind == AclResourceType.CLUSTER else "<any>" if name is None else name
    return (
        f"ResourcePattern(resourceType={known(AclResourceType, kind).name}, name={shown}, "
        f"patternType={known(PatternType, pattern).name})"
    )


def _entry(acl: AclBinding) -> str:
    """As Java's `AccessControlEntry.toString`."""
    return (
        f"(principal={acl.principal}, host={acl.host}, operation={known(AclOperation, acl.operation).name}, "
        f"permissionType={known(AclPermissionType, acl.permission_type).name})"
    )
