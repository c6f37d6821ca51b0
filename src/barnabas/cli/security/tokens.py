"""Shell: `barnabas tokens`: delegation tokens: creating, listing, renewing and expiring them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.options import Bootstrap, CommandConfig, Json, Yes, noun
from barnabas.cli.output import confirm, fail, note, print_json, print_table
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin
from barnabas.client.explanations.words import moment

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.tokens import DelegationToken
    from barnabas.protocol.security.principals import KafkaPrincipal

app = noun("Delegation tokens: passwords that expire, for jobs that log in as the user who starts them.")

TokenId = Annotated[str, typer.Argument(help="The id of the token.", metavar="TOKEN_ID")]
Period = Annotated[str | None, typer.Option(help="From now, for example PT12H or P1D.", metavar="DURATION")]


@app.command()
def create(
    owner: Annotated[
        str | None, typer.Option(help="Whose token it is, User:NAME; you by default.", metavar="PRINCIPAL")
    ] = None,
    renewer: Annotated[
        list[str] | None, typer.Option(help="Who else may renew it, User:NAME; repeatable.", metavar="PRINCIPAL")
    ] = None,
    max_lifetime: Annotated[
        str | None, typer.Option(help="The end of all renewals, for example P7D.", metavar="DURATION")
    ] = None,
    jaas_file: Annotated[
        str | None,
        typer.Option(help="Write the settings of a client that logs in with the token to this file.", metavar="FILE"),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Create a token. The output contains its secret, the HMAC.

    Example: `barnabas tokens create --renewer User:scheduler --max-lifetime P7D --jaas-file job.properties`
    """
    who = None if owner is None else _principal(owner)
    renewers = [_principal(text) for text in renewer or ()]
    lifetime_ms = _period_ms(max_lifetime)

    async def command(admin: AsyncAdmin) -> DelegationToken:
        return await admin.create_delegation_token(owner=who, renewers=renewers, max_lifetime_ms=lifetime_ms)

    token = run_admin(bootstrap_server, command, read_properties(command_config))
    if jaas_file is not None:
        _write_settings(jaas_file, token)
    _print([token], json=json)


@app.command("list")
def list_tokens(
    owner: Annotated[
        list[str] | None, typer.Option(help="Only tokens of this principal; repeatable.", metavar="PRINCIPAL")
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """List the tokens that you own, have requested or may renew, and those that an ACL shows you.

    Example: `barnabas tokens list --owner User:alice`
    """
    owners = None if owner is None else [_principal(text) for text in owner]

    async def command(admin: AsyncAdmin) -> list[DelegationToken]:
        return await admin.describe_delegation_tokens(owners)

    _print(run_admin(bootstrap_server, command, read_properties(command_config)), json=json)


@app.command()
def describe(
    token_id: TokenId,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Show one token.

    Example: `barnabas tokens describe qf6d8yQxTg2tDTHqnPoLgw`
    """

    async def command(admin: AsyncAdmin) -> DelegationToken:
        return await _token(admin, token_id)

    _print([run_admin(bootstrap_server, command, read_properties(command_config))], json=json)


@app.command()
def renew(
    token_id: TokenId,
    period: Period = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Let a token expire later, by default after the time that the cluster gives (delegation.token.expiry.time.ms).

    Example: `barnabas tokens renew qf6d8yQxTg2tDTHqnPoLgw --period PT12H`
    """
    period_ms = _period_ms(period)

    async def command(admin: AsyncAdmin) -> int:
        return await admin.renew_delegation_token((await _token(admin, token_id)).hmac, period_ms=period_ms)

    expiry = run_admin(bootstrap_server, command, read_properties(command_config))
    note(f"the token {token_id} expires at {moment(expiry)}")


@app.command()
def expire(
    token_id: TokenId,
    period: Period = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    yes: Yes = False,
    command_config: CommandConfig = None,
) -> None:
    """Remove a token now, or let it expire at another time. Sessions last until the expiry that they began with.

    Example: `barnabas tokens expire qf6d8yQxTg2tDTHqnPoLgw --yes`
    """
    period_ms = _period_ms(period)
    if period is None:
        confirm(yes, f"Remove the token {token_id}?")

    async def command(admin: AsyncAdmin) -> int:
        return await admin.expire_delegation_token((await _token(admin, token_id)).hmac, period_ms=period_ms)

    expiry = run_admin(bootstrap_server, command, read_properties(command_config))
    if period is None:
        note(f"the token {token_id} is removed")
    else:
        note(f"the token {token_id} expires at {moment(expiry)}")


async def _token(admin: AsyncAdmin, token_id: str) -> DelegationToken:
    """The token with this id. The id finds the token's HMAC, so that no secret is typed on a command line."""
    found = [token for token in await admin.describe_delegation_tokens() if token.token_id == token_id]
    if not found:
        fail(f"there is no token {token_id} that you may see: list them with `barnabas tokens list`")
    return found[0]


def _print(tokens: list[DelegationToken], *, json: bool) -> None:
    if json:
        print_json(
            [
                {
                    "tokenId": token.token_id,
                    "hmac": token.hmac_text,
                    "owner": str(token.owner),
                    "requester": str(token.requester),
                    "renewers": list(map(str, token.renewers)),
                    "issueTimestamp": token.issue_timestamp,
                    "expiryTimestamp": token.expiry_timestamp,
                    "maxTimestamp": token.max_timestamp,
                }
                for token in tokens
            ]
        )
        return
    rows = [
        (
            token.token_id,
            token.hmac_text,
            token.owner,
            token.requester,
            token.renewers,
            *map(moment, (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp)),
        )
        for token in sorted(tokens, key=lambda token: (str(token.owner), token.issue_timestamp))
    ]
    columns = ["TOKEN", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUED", "EXPIRES", "ENDS"]
    print_table(columns, rows, empty="no delegation tokens")


def _write_settings(path: str, token: DelegationToken) -> None:
    """Write a properties file that only its owner can read."""
    text = f"sasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={token.jaas_config}\n"
    target = Path(path)
    try:
        target.touch(mode=0o600)
        target.chmod(0o600)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"the token {token.token_id} is created, but {path} cannot be written: {error.strerror}")


def _principal(text: str) -> KafkaPrincipal:
    from barnabas.protocol.security.principals import parse_principal

    return parse_principal(text)


def _period_ms(text: str | None) -> int:
    """-1, the choice of the cluster, if nothing is given."""
    if text is None:
        return -1
    from barnabas.client.admin.offset_resets import parse_duration_ms

    return parse_duration_ms(text)
