"""kctl profile: adds, selects, logs in to, lists, shows and removes profiles of clusters."""

from enum import StrEnum
from typing import Annotated, Any

from kctl.cli.connect import flatten_profile, parse_pairs
from kctl.cli.declaration.command import local_command
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE
from kctl.cli.output import Output, OutputFormat, Table
from kctl.cli.profile import editing, secrets
from kctl.cli.profile.profile_file import ProfileFile, edit_profile
from kctl.cli.units import parse_duration_ms
from kctl.client.bootstrap_servers import parse_servers
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

app = CommandGroup()


class Confirm(StrEnum):
    """What a dangerous command asks for."""

    YES = "yes"
    BY_NAME = "by-name"


NameArgument = Annotated[str, Argument(metavar="PROFILE", help="Its name.")]
OutputOption = Annotated[OutputFormat, Option("--output", "-o", help="How to print the result.")]
_COLUMNS = ("profile", "default", "bootstrap_servers", "read_only", "confirm", "expect_cluster")


ServersOption = Annotated[
    str,
    Option("--bootstrap-server", "-b", metavar="HOST:PORT,...", help="Bootstrap brokers."),
]
PropertyOption = Annotated[
    list[str] | None,
    Option("--property", "-X", metavar="KEY=VALUE", help="A client setting; may be repeated."),
]
TimeoutOption = Annotated[
    str | None, Option("--timeout", metavar="DURATION", help="Of each command.")
]
ReadOnlyOption = Annotated[bool, Option("--read-only", help="Refuse every command that writes.")]
ConfirmOption = Annotated[
    Confirm, Option("--confirm", help="by-name: dangerous commands ask for PROFILE.")
]
ExpectOption = Annotated[
    str | None,
    Option("--expect-cluster", metavar="ID", help="Refuse any other cluster."),
]
UsernameOption = Annotated[
    str | None, Option("--username", metavar="NAME", help="Becomes sasl.username.")
]
SaveOption = Annotated[
    str | None,
    Option(
        "--save-in",
        metavar="FILE",
        help="Store the password in this file, which only you can read, and not in the keyring.",
    ),
]
ReplaceOption = Annotated[bool, Option("--replace", help="Replace a profile of that name.")]


@dataclass(frozen=True, slots=True)
class PasswordOptions:
    """Where the password is."""

    password_file: Annotated[
        str | None,
        Option("--password-file", metavar="FILE", help="Its first line is sasl.password."),
    ] = None
    password_command: Annotated[
        str | None,
        Option(
            "--password-command", metavar="COMMAND", help="It prints sasl.password, e.g. `pass x`."
        ),
    ] = None
    password_env: Annotated[
        str | None,
        Option("--password-env", metavar="VARIABLE", help="It holds sasl.password."),
    ] = None
    password_keyring: Annotated[
        str | None,
        Option(
            "--password-keyring",
            metavar="SERVICE/USER",
            help="The entry of the OS keyring with sasl.password.",
        ),
    ] = None

    def settings(self) -> dict[str, str]:
        """Return the reference as a setting; raise UsageError if there are several."""
        given = {
            "password-file": self.password_file,
            "password-command": self.password_command,
            "password-env": self.password_env,
            "password-keyring": self.password_keyring,
        }
        chosen = {key: value for key, value in given.items() if value is not None}
        if len(chosen) > 1:
            raise UsageError("A profile has one password", hint="give one --password-... option")
        return chosen


@local_command(app, "add")
def add(
    name: NameArgument,
    bootstrap_server: ServersOption,
    properties: PropertyOption = None,
    timeout: TimeoutOption = None,
    read_only: ReadOnlyOption = False,
    confirm: ConfirmOption = Confirm.YES,
    expect_cluster: ExpectOption = None,
    replace: ReplaceOption = False,
    *,
    password: PasswordOptions,
) -> int:
    """Add a profile, which -C and `kctl profile use` select.

    A password is best given as a reference; kctl reads it when it connects. The file of profiles,
    ~/.config/kctl/config.toml, is readable for its owner only.

    \b
    Examples:
      kctl profile add dev -b localhost:9092
      kctl profile add prod -b kafka-1:9092 --confirm by-name --expect-cluster iQ2nBxCZQ8eD0q3X
      kctl profile add audit -b kafka-1:9093 --read-only --password-command 'pass kafka/audit' \\
        -X security.protocol=SASL_PLAINTEXT -X sasl.mechanism=SCRAM-SHA-512 -X sasl.username=audit
    """
    parse_servers(bootstrap_server)
    if timeout is not None:
        parse_duration_ms(timeout)
    optional = {
        "timeout": timeout,
        "read-only": read_only or None,
        "confirm": None if confirm is Confirm.YES else str(confirm),
        "expect-cluster": expect_cluster,
        **password.settings(),
        **_checked_properties(properties or []),
    }
    found = ProfileFile.read()
    if name in found.profiles and not replace:
        raise UsageError(f"There is a profile {name} already", hint="add --replace to replace it")
    profile: dict[str, Any] = {"bootstrap_servers": bootstrap_server.split(",")}
    profile |= {key: value for key, value in optional.items() if value is not None}
    found.write(editing.with_profile(found.text, name, profile))
    Output().say(f"Wrote the profile {name} to {found.path}. Next: kctl topic list -C {name}")
    return DONE


@local_command(app, "login")
def login(
    name: NameArgument,
    username: UsernameOption = None,
    save_in: SaveOption = None,
    *,
    password: PasswordOptions,
) -> int:
    """Log in to the cluster of a profile, and keep a reference to the password in the profile.

    Without a --password option, the command asks for the password, or reads it from standard input
    with --password-file -. If the cluster accepts it, it is stored in the keyring of the operating
    system, or in a new file with --save-in, and never in the profile. A rejected password changes
    nothing.

    \b
    Examples:
      kctl profile login prod
      kctl profile login prod --username alice --save-in ~/.config/kctl/prod.password
      kctl profile login prod --password-command 'pass kafka/prod'
      kctl profile login prod --password-keyring kafka/alice
    """
    from kctl.cli.profile.login import Login, log_in

    output = Output()
    reference = next(iter(password.settings().items()), None)
    stored = log_in(Login(name, username, reference, save_in), output)
    output.say(f"Logged in. The profile {name} refers to the password: {stored}")
    return DONE


def _checked_properties(texts: list[str]) -> dict[str, str]:
    from kctl.configs.client_configs import check_client_config

    given = parse_pairs(texts, "-X")
    for key in given:
        check_client_config(key, "-X")
    return given


@local_command(app, "use")
def use(name: NameArgument) -> int:
    """Make a profile the default: commands without -b and -C use it.

    \b
    Examples:
      kctl profile use dev
    """
    edit_profile(name, editing.with_default)
    Output().say(f"Commands without -b or -C now use {name}.")
    return DONE


@local_command(app, "list")
def list_profiles(output_format: OutputOption = OutputFormat.TABLE) -> int:
    """List the profiles.

    \b
    Examples:
      kctl profile list
    """
    found = ProfileFile.read()
    rows = [
        _row(name, flatten_profile(it), name == found.default)
        for name, it in found.profiles.items()
    ]
    Output(output_format).show(rows, _COLUMNS, name="profile")
    return DONE


@local_command(app, "show")
def show(name: NameArgument, output_format: OutputOption = OutputFormat.TABLE) -> int:
    """Show the settings of a profile. Secrets are hidden; references to them are shown.

    \b
    Examples:
      kctl profile show prod -o json
    """
    settings = secrets.shown(flatten_profile(ProfileFile.read().profile(name)))
    rows = [{"setting": key, "value": value} for key, value in settings.items()]
    table = Table(["setting", "value"], rows)
    Output(output_format).show_one({"profile": name, **settings}, [table], name="profile")
    return DONE


@local_command(app, "remove")
def remove(name: NameArgument) -> int:
    """Remove a profile, and its password if `kctl profile login` put it into the keyring.

    \b
    Examples:
      kctl profile remove dev
    """
    former = edit_profile(name, editing.without_profile)
    Output().say(f"Removed the profile {name}.")
    from kctl.cli.profile.login import forget

    forget(name, flatten_profile(former.profile(name)))
    return DONE


def _row(name: str, settings: dict[str, str], is_default: bool) -> dict[str, Any]:
    rules = {key.replace("-", "_"): value for key, value in settings.items()}
    return {
        "profile": name,
        "default": is_default,
        "bootstrap_servers": settings.get("bootstrap.servers"),
        "read_only": rules.get("read_only") == "true",
        "confirm": rules.get("confirm", str(Confirm.YES)),
        "expect_cluster": rules.get("expect_cluster"),
    }
