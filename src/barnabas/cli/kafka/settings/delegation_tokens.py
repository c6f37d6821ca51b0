"""Shell: `kafka-delegation-tokens`: creates, renews, expires and describes delegation tokens, with the flags and the
output of Kafka's DelegationTokenCommand."""

from __future__ import annotations

import argparse
import binascii
from base64 import b64decode
from datetime import datetime
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.arguments import Parser, client_settings, emit
from barnabas.cli.session import run_admin
from barnabas.protocol.security.principals import KafkaPrincipal, parse_principal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.tokens import DelegationToken

_ACTIONS: Final = ("create", "renew", "expire", "describe")
_NEEDED: Final = {
    "create": ("max_life_time_period",),
    "renew": ("hmac", "renew_time_period"),
    "expire": ("hmac", "expiry_time_period"),
    "describe": (),
}
_INVALID: Final = {
    "create": ("hmac", "renew_time_period", "expiry_time_period"),
    "renew": ("renewer_principal", "max_life_time_period", "expiry_time_period", "owner_principal"),
    "expire": ("max_life_time_period", "renew_time_period", "owner_principal"),
    "describe": ("renew_time_period", "max_life_time_period", "hmac", "expiry_time_period"),
}
_WIDTHS: Final = (15, 30, 15, 15, 25, 15, 15, 15)
_COLUMNS: Final = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")


def build_parser() -> Parser:
    parser = Parser("kafka-delegation-tokens", "Create, renew, expire and describe delegation tokens.")
    action = parser.add_mutually_exclusive_group(required=True)
    for name, text in (
        ("create", "create a token"),
        ("renew", "let a token expire later"),
        ("expire", "let a token expire"),
        ("describe", "list the tokens of the owners, or all that you may see"),
    ):
        action.add_argument(f"--{name}", action="store_true", help=text)
    for flag, text in (
        ("--owner-principal", "an owner, Type:name"),
        ("--renewer-principal", "a principal that may renew the token, Type:name"),
    ):
        parser.add_argument(flag, action="append", metavar="PRINCIPAL", help=text)
    for flag, text in (
        ("--max-life-time-period", "milliseconds; -1 is the default of the cluster"),
        ("--renew-time-period", "milliseconds; -1 is the default of the cluster"),
        ("--expiry-time-period", "milliseconds; -1 removes the token"),
    ):
        parser.add_argument(flag, type=int, metavar="MS", help=text)
    parser.add_argument("--hmac", help="the HMAC of the token, in base64")
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    action = next(name for name in _ACTIONS if getattr(options, name))
    for name in _NEEDED[action]:
        if getattr(options, name) is None:
            parser.error(f"Missing required argument {_flag(name)}")
    for name in _INVALID[action]:
        if getattr(options, name) is not None:
            parser.error(f"Option --{action} can't be used with option {_flag(name)}")
    try:
        owners = [parse_principal(text.strip()) for text in options.owner_principal or ()]
        renewers = [parse_principal(text.strip()) for text in options.renewer_principal or ()]
    except ValueError as error:
        parser.error(str(error))
    token_hmac = _decoded(options, parser)

    async def command(admin: AsyncAdmin) -> None:
        match action:
            case "create":
                await _create(admin, owners, renewers, options.max_life_time_period)
            case "renew":
                emit(
                    f"Calling renew token operation with hmac :{options.hmac} , renew-time-period "
                    f":{options.renew_time_period}"
                )
                expiry = await admin.renew_delegation_token(token_hmac, period_ms=options.renew_time_period)
                emit(f"Completed renew operation. New expiry date : {_date(expiry)}")
            case "expire":
                emit(
                    f"Calling expire token operation with hmac :{options.hmac} , expire-time-period "
                    f":{options.expiry_time_period}"
                )
                expiry = await admin.expire_delegation_token(token_hmac, period_ms=options.expiry_time_period)
                emit(f"Completed expire operation. New expiry date : {_date(expiry)}")
            case _:
                await _describe(admin, owners)

    run_admin(options.bootstrap_server, command, client_settings(options))


async def _create(
    admin: AsyncAdmin, owners: list[KafkaPrincipal], renewers: list[KafkaPrincipal], lifetime_ms: int
) -> None:
    emit(f"Calling create token operation with renewers :{_list(renewers)} , max-life-time-period :{lifetime_ms}")
    owner = owners[0] if owners else None
    token = await admin.create_delegation_token(owner=owner, renewers=renewers, max_lifetime_ms=lifetime_ms)
    emit(f"Created delegation token with tokenId : {token.token_id}")
    _print([token])


async def _describe(admin: AsyncAdmin, owners: list[KafkaPrincipal]) -> None:
    """Kafka's tool without owners sends an empty list, which selects no token. Its help says that it lists all."""
    if owners:
        emit(f"Calling describe token operation for owners: {_list(owners)}")
    else:
        emit("Calling describe token operation for current user.")
    tokens = await admin.describe_delegation_tokens(owners or None)
    emit(f"Total number of tokens : {len(tokens)}")
    _print(tokens)


def _print(tokens: list[DelegationToken]) -> None:
    rows: list[Sequence[str]] = [_COLUMNS]
    for token in tokens:
        dates = map(_date, (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp))
        who = (str(token.owner), str(token.requester), _list(token.renewers))
        rows.append((token.token_id, token.hmac_text, *who, *dates))
    for row in rows:
        emit("\n" + " ".join(cell.ljust(width) for cell, width in zip(row, _WIDTHS, strict=True)))


def _list(principals: Sequence[KafkaPrincipal]) -> str:
    """As Java prints a list."""
    return f"[{', '.join(map(str, principals))}]"


def _date(timestamp_ms: int) -> str:
    """In the time zone of this machine, as Kafka's tool prints it."""
    return datetime.fromtimestamp(timestamp_ms / 1000).strftime("%Y-%m-%dT%H:%M")


def _decoded(options: argparse.Namespace, parser: Parser) -> bytes:
    try:
        return b64decode(options.hmac or "", validate=True)
    except binascii.Error:
        parser.error("--hmac is not base64")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
