"""kctl user: users' SCRAM credentials."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import CHANGES, DANGEROUS, READS, remote_command
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.items import row, show_change, show_results
from kctl.cli.output import Table
from kctl.cli.passwords import read_password
from kctl.cli.session import Question, Session
from kctl.counts import counted
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.users import UserCredentials
    from kctl.protocol.sasl.scram import ScramMechanism

app = CommandGroup()

NamesArgument = Annotated[list[str] | None, Argument(metavar="USER", help="Some users.")]
NameArgument = Annotated[str, Argument(metavar="USER", help="The name of the user.")]
UsersArgument = Annotated[list[str], Argument(metavar="USER", help="The users.")]
MechanismOption = Annotated[
    list[str] | None,
    Option(
        "--mechanism",
        metavar="MECHANISM",
        help="SCRAM-SHA-256 or SCRAM-SHA-512; may be repeated. [default: both]",
    ),
]
PasswordFileOption = Annotated[
    str | None,
    Option(
        "--password-file",
        metavar="FILE",
        help="Read the password from the first line of FILE; `-`: standard input.",
    ),
]
IterationsOption = Annotated[
    int,
    Option("--iterations", metavar="N", help="Rounds of the hash, 4096 to 16384."),
]


@remote_command(app, "list", READS)
def list_users(session: Session, names: NamesArgument = None) -> int:
    """List users with SCRAM credentials.

    \b
    Examples:
      kctl user list
      kctl user list alice -o json
    """
    users = session.run(lambda admin: admin.users.list_users(names or []))
    rows = [
        row(
            "user",
            user.name,
            "exists",
            user.error,
            **{mechanism.value: count for mechanism, count in user.iterations.items()},
        )
        for user in users
    ]
    columns = _filled(rows)
    return show_results(session, columns, "user", hidden=["status"])


@remote_command(app, "create", CHANGES)
def create(
    session: Session,
    name: NameArgument,
    mechanism: MechanismOption = None,
    password_file: PasswordFileOption = None,
    iterations: IterationsOption = 8192,
) -> int:
    """Create a user with a password, or give an existing user another mechanism.

    A password that the user has is not changed: see `kctl user passwd`.
    The password is never part of the command line: it is read from a file, from standard input, or
    asked for on the terminal.

    \b
    Examples:
      kctl user create alice
      kctl user create alice --password-file alice.txt --mechanism SCRAM-SHA-512
      pass kafka/alice | kctl user create alice --password-file -
    """
    from kctl.admin.users import NewPassword

    mechanisms = _mechanisms(mechanism or [])
    if session.dry_run:
        return show_results(session, [row("user", name, "would set password")], "user")
    wanted = NewPassword(
        name, read_password(name, password_file, is_new=True), mechanisms, iterations
    )
    created = session.run(lambda admin: admin.users.create_user(wanted))
    return show_results(session, [row("user", name, "password set", created.error)], "user")


@remote_command(app, "passwd", CHANGES)
def passwd(session: Session, name: NameArgument, password_file: PasswordFileOption = None) -> int:
    """Change the password of an existing user, for the mechanisms that the user has.

    Open connections stay open. The password is never part of the command line.

    \b
    Examples:
      kctl user passwd alice
      pass kafka/alice | kctl user passwd alice --password-file -
    """
    password = "" if session.dry_run else read_password(name, password_file, is_new=True)
    change = session.change(
        lambda admin: admin.users.list_users([name]),
        lambda _users: None,
        lambda admin, users: admin.users.change_passwords(users, password),
    )
    return show_change(
        session,
        change,
        "user",
        lambda users: [row("user", it.name, "would set password", it.error) for it in users],
        lambda results: [row("user", it.name, "password set", it.error) for it in results],
    )


@remote_command(app, "delete", DANGEROUS)
def delete(session: Session, names: UsersArgument, mechanism: MechanismOption = None) -> int:
    """Delete the SCRAM credentials of users; connections that are open stay open.

    \b
    Examples:
      kctl user delete alice
      kctl user delete alice bob --mechanism SCRAM-SHA-256 --yes
    """
    mechanisms = _mechanisms(mechanism or []) if mechanism else ()

    def question(users: "Sequence[UserCredentials]") -> Question:
        table = Table(("user", "mechanisms"), [_described(user) for user in users])
        return Question(table, f"Delete the credentials of {counted(len(users), 'user')}?")

    change = session.change(
        lambda admin: admin.users.list_users(names),
        question,
        lambda admin, users: admin.users.delete_users(users, mechanisms),
    )
    return show_change(
        session,
        change,
        "user",
        lambda users: [row("user", it.name, "would delete", it.error) for it in users],
        lambda results: [row("user", it.name, "deleted", it.error) for it in results],
    )


def _described(user: "UserCredentials") -> dict[str, Any]:
    names = ", ".join(mechanism.value for mechanism in user.iterations)
    return {"user": user.name, "mechanisms": names}


def _filled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows that all have the columns of both mechanisms."""
    from kctl.protocol.sasl.scram import ScramMechanism

    names = [mechanism.value for mechanism in ScramMechanism]
    return [
        {"user": it["user"], **{name: it.get(name) for name in names},
         "status": it["status"], "error": it["error"]}
        for it in rows
    ]  # fmt: skip


def _mechanisms(names: Sequence[str]) -> "Sequence[ScramMechanism]":
    from kctl.protocol.sasl.scram import BY_NAME

    for name in names:
        if name.upper() not in BY_NAME:
            raise UsageError(
                f"{name} is not a SCRAM mechanism", hint=f"use one of {', '.join(BY_NAME)}"
            )
    return [BY_NAME[name.upper()] for name in names] or list(BY_NAME.values())
