"""kctl token: delegation tokens, with which applications act for a user without his password."""

from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import CHANGES, DANGEROUS, READS, remote_command
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.items import row, show_change, show_results
from kctl.cli.output import Table
from kctl.cli.session import Question, Session
from kctl.cli.units import format_instant, parse_duration_ms

if TYPE_CHECKING:
    from kctl.admin.tokens import DelegationToken

app = CommandGroup()

TokenArgument = Annotated[str, Argument(metavar="TOKEN_ID", help="The id of the token.")]
RenewerOption = Annotated[
    list[str] | None,
    Option("--renewer", metavar="USER", help="A user who may renew it; may be repeated."),
]
LifetimeOption = Annotated[
    str | None,
    Option(
        "--max-lifetime", metavar="TIME", help="How long it can be renewed. [default: the broker's]"
    ),
]
RenewalOption = Annotated[
    str | None,
    Option("--for", metavar="TIME", help="Its life from now on. [default: the broker's]"),
]
DelayOption = Annotated[
    str | None,
    Option("--in", metavar="TIME", help="Its life from now on. [default: none]"),
]
OwnerOption = Annotated[
    list[str] | None,
    Option("--owner", metavar="USER", help="Only tokens of USER; may be repeated."),
]


@remote_command(app, "list", READS)
def list_tokens(session: Session, owner: OwnerOption = None) -> int:
    """List the delegation tokens that you may see, without their secrets.

    \b
    Examples:
      kctl token list
      kctl token list --owner alice -o json
    """
    tokens = session.run(lambda admin: admin.tokens.list_tokens(owner))
    rows = [row("token", token.token_id, "exists", **_described(token)) for token in tokens]
    return show_results(session, rows, "token", hidden=["status"])


@remote_command(app, "create", CHANGES)
def create(
    session: Session, renewer: RenewerOption = None, max_lifetime: LifetimeOption = None
) -> int:
    """Create a delegation token of the user you log in as, and print its secret.

    A client logs in with it by SCRAM: the id is the user name, the secret the password, and
    sasl.jaas.config needs tokenauth=true.

    \b
    Examples:
      kctl token create --command-config alice.properties
      kctl token create --renewer bob --max-lifetime 1d -o json
    """
    from kctl.admin.tokens import BROKERS_PERIOD

    lifetime_ms = BROKERS_PERIOD if max_lifetime is None else parse_duration_ms(max_lifetime)
    if session.dry_run:
        return show_results(session, [row("token", "(new)", "would create")], "token")
    token = session.run(lambda admin: admin.tokens.create_token(renewer or [], lifetime_ms))
    created = row("token", token.token_id, "created", secret=token.password, **_described(token))
    return show_results(session, [created], "token")


@remote_command(app, "renew", CHANGES)
def renew(session: Session, token_id: TokenArgument, life: RenewalOption = None) -> int:
    """Renew a delegation token, up to its maximum lifetime; its owner and its renewers can.

    \b
    Examples:
      kctl token renew 2Yw7KuGOSlKDWSKmuR9lZw
      kctl token renew 2Yw7KuGOSlKDWSKmuR9lZw --for 12h
    """
    from kctl.admin.tokens import BROKERS_PERIOD

    period_ms = BROKERS_PERIOD if life is None else parse_duration_ms(life)

    change = session.change(
        lambda admin: admin.tokens.find_token(token_id),
        lambda _token: None,
        lambda admin, token: admin.tokens.renew_token(token, period_ms),
    )
    return show_change(
        session,
        change,
        "token",
        lambda _token: [row("token", token_id, "would renew")],
        lambda until_ms: [row("token", token_id, "renewed", expires=format_instant(until_ms))],
    )


@remote_command(app, "expire", DANGEROUS)
def expire(session: Session, token_id: TokenArgument, delay: DelayOption = None) -> int:
    """Delete a delegation token, or have it expire soon; open connections stay open.

    \b
    Examples:
      kctl token expire 2Yw7KuGOSlKDWSKmuR9lZw
      kctl token expire 2Yw7KuGOSlKDWSKmuR9lZw --in 10m --yes
    """
    from kctl.admin.tokens import AT_ONCE

    period_ms = AT_ONCE if delay is None else parse_duration_ms(delay)

    def question(token: "DelegationToken") -> Question:
        shown = {"token": token.token_id, **_described(token)}
        return Question(Table(tuple(shown), [shown]), "Expire this token?")

    change = session.change(
        lambda admin: admin.tokens.find_token(token_id),
        question,
        lambda admin, token: admin.tokens.expire_token(token, period_ms),
    )
    return show_change(
        session,
        change,
        "token",
        lambda _token: [row("token", token_id, "would expire")],
        lambda until_ms: [row("token", token_id, "expired", expires=format_instant(until_ms))],
    )


def _described(token: "DelegationToken") -> dict[str, Any]:
    return {
        "owner": token.owner,
        "renewers": ", ".join(token.renewers),
        "expires": format_instant(token.expiry_timestamp_ms),
        "latest": format_instant(token.max_timestamp_ms),
    }
