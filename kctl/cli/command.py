"""How a command that talks to a cluster is declared: its own parameters, plus the shared ones.

`@remote_command(app, "list")` adds the shared options to the function's, gathers them into a
Session, gives that as first argument, and turns what the function returns (an exit status or None)
or raises into the exit status of the process.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from kctl.cli import failures
from kctl.cli.connect import ConnectOptions
from kctl.cli.output import Output, OutputFormat
from kctl.cli.session import Session

_CONNECT: dict[str, tuple[Any, object]] = {
    "bootstrap_server": (
        Annotated[
            str | None,
            typer.Option(
                "--bootstrap-server",
                "-b",
                metavar="HOST:PORT,...",
                help="Brokers to ask first. [env: KCTL_BOOTSTRAP_SERVER; default: localhost:9092]",
            ),
        ],
        None,
    ),
    "properties": (
        Annotated[
            list[str] | None,
            typer.Option(
                "--property",
                "-X",
                metavar="KEY=VALUE",
                help="A setting of Apache Kafka's clients; may be repeated.",
            ),
        ],
        None,
    ),
    "profile": (
        Annotated[
            str | None,
            typer.Option(
                "--profile",
                "-C",
                metavar="NAME",
                help="A profile of ~/.config/kctl/config.toml. [env: KCTL_PROFILE]",
            ),
        ],
        None,
    ),
    "command_config": (
        Annotated[
            str | None,
            typer.Option(
                "--command-config", metavar="FILE", help="Apache Kafka's client.properties."
            ),
        ],
        None,
    ),
    "timeout": (
        Annotated[
            str | None,
            typer.Option(
                "--timeout", metavar="DURATION", help="Give up after that. [default: 30s]"
            ),
        ],
        None,
    ),
}
_OUTPUT: dict[str, tuple[Any, object]] = {
    "output_format": (
        Annotated[
            OutputFormat,
            typer.Option("--output", "-o", help="How to print the result.", show_default=True),
        ],
        OutputFormat.TABLE,
    ),
}
_DRY_RUN: dict[str, tuple[Any, object]] = {
    "dry_run": (
        Annotated[
            bool,
            typer.Option("--dry-run", "-n", help="Only say what would be done."),
        ],
        False,
    ),
}
_YES: dict[str, tuple[Any, object]] = {
    "yes": (Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")], False),
}

# The names of all parameters that commands share.
SHARED_OPTIONS = frozenset(_CONNECT | _OUTPUT | _DRY_RUN | _YES)


@dataclass(frozen=True, slots=True)
class Kind:
    """What a command does, which decides its shared options."""

    # It changes something: it has --dry-run.
    changes: bool = False
    # What it destroys is gone: it shows a plan and asks, and has --yes.
    dangerous: bool = False
    # It prints documents: it has --output.
    has_output: bool = True


READS = Kind()
CHANGES = Kind(changes=True)
DANGEROUS = Kind(changes=True, dangerous=True)
STREAMS = Kind(has_output=False)
Body = Callable[..., int | None]


def remote_command(app: typer.Typer, name: str, kind: Kind = READS) -> Callable[[Body], Body]:
    """Register the decorated function as command `name` of `app`."""

    def decorate(body: Body) -> Body:
        shared = dict(_CONNECT)
        shared |= _OUTPUT if kind.has_output else {}
        shared |= _DRY_RUN if kind.changes else {}
        shared |= _YES if kind.dangerous else {}
        app.command(name, help=inspect.getdoc(body))(_wrap(body, shared))
        return body

    return decorate


def local_command(app: typer.Typer, name: str) -> Callable[[Body], Body]:
    """Register the decorated function, which talks to no cluster, as command `name` of `app`."""

    def decorate(body: Body) -> Body:
        wrapper = guarded(body)
        parameters = list(inspect.signature(body).parameters.values())
        _set_parameters(wrapper, parameters)
        app.command(name, help=inspect.getdoc(body))(wrapper)
        return body

    return decorate


def guarded(body: Body) -> Callable[..., None]:
    """`body` with its exceptions told to the user and its status as the exit status."""

    def run(*args: object, **kwargs: object) -> None:
        try:
            status = body(*args, **kwargs) or failures.DONE
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - here every error ends
            status = failures.report(error)
        raise typer.Exit(status)

    return run


def _wrap(body: Body, shared: dict[str, tuple[Any, object]]) -> Callable[..., None]:
    own = list(inspect.signature(body).parameters.values())[1:]
    added = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )
        for name, (annotation, default) in shared.items()
    ]

    def call(**arguments: Any) -> int | None:
        mine = {name: arguments.pop(name) for name in shared}
        return body(_make_session(mine), **arguments)

    wrapper = guarded(call)
    _set_parameters(wrapper, own + added)
    return wrapper


def _set_parameters(wrapper: Callable[..., None], parameters: list[inspect.Parameter]) -> None:
    """Typer reads a command's parameters from these two attributes."""
    named = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    wrapper.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in named}


def _make_session(values: dict[str, Any]) -> Session:
    options = ConnectOptions(
        bootstrap_server=values["bootstrap_server"],
        properties=values["properties"] or (),
        profile=values["profile"],
        command_config=values["command_config"],
        timeout=values["timeout"],
    )
    return Session(
        options,
        Output(values.get("output_format", OutputFormat.TABLE)),
        dry_run=values.get("dry_run", False),
        assume_yes=values.get("yes", False),
    )
