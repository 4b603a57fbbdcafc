"""Declares commands: a function's own parameters plus the options that commands share.

`@remote_command(app, "list")` adds the shared options to the parameters of the function, collects
their values in a Session, passes that as the first argument, and turns the function's result (an
exit status or None) or exception into the exit status of the process.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

from kctl.cli import failures
from kctl.cli.connect import ConnectOptions
from kctl.cli.declaration.declarations import CommandGroup, Exit, Option
from kctl.cli.declaration.option_groups import grouped, option_groups, with_fields
from kctl.cli.declaration.spec import option_names
from kctl.cli.output import Output, OutputFormat
from kctl.cli.pipes import begin_command
from kctl.cli.session import Session
from kctl.errors import UsageError
from kctl.imports import end_imports
from kctl.lazy_dataclass import dataclass

_CONNECT: dict[str, tuple[Any, object]] = {
    "bootstrap_server": (
        Annotated[
            str | None,
            Option(
                "--bootstrap-server",
                "-b",
                metavar="HOST:PORT,...",
                help="Bootstrap brokers. [env: KCTL_BOOTSTRAP_SERVER; default: localhost:9092]",
            ),
        ],
        None,
    ),
    "properties": (
        Annotated[
            list[str] | None,
            Option(
                "--property",
                "-X",
                metavar="KEY=VALUE",
                help="A client setting of Apache Kafka; may be repeated.",
            ),
        ],
        None,
    ),
    "profile": (
        Annotated[
            str | None,
            Option(
                "--profile",
                "-C",
                metavar="NAME",
                help="A profile of ~/.config/kctl/config.toml. [env: KCTL_PROFILE]",
            ),
        ],
        None,
    ),
    "expect_cluster": (
        Annotated[
            str | None,
            Option(
                "--expect-cluster",
                metavar="ID",
                help="Stop if the cluster has another id. [env: KCTL_EXPECT_CLUSTER]",
            ),
        ],
        None,
    ),
    "command_config": (
        Annotated[
            str | None,
            Option(
                "--command-config", metavar="FILE", help="A client.properties file of Apache Kafka."
            ),
        ],
        None,
    ),
    "timeout": (
        Annotated[
            str | None,
            Option("--timeout", metavar="DURATION", help="Give up after this time. [default: 30s]"),
        ],
        None,
    ),
}
_OUTPUT: dict[str, tuple[Any, object]] = {
    "output_format": (
        Annotated[
            OutputFormat,
            Option("--output", "-o", help="How to print the result."),
        ],
        OutputFormat.TABLE,
    ),
}
_DRY_RUN: dict[str, tuple[Any, object]] = {
    "dry_run": (
        Annotated[
            bool,
            Option("--dry-run", "-n", help="Show what would be done; change nothing."),
        ],
        False,
    ),
}
_YES: dict[str, tuple[Any, object]] = {
    "yes": (
        Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")],
        False,
    ),
}

# The names of all parameters that commands share.
SHARED_OPTIONS = frozenset(_CONNECT | _OUTPUT | _DRY_RUN | _YES)


# What Kafka's protocol can hold.
INT64_MAX = (1 << 63) - 1
INT32_MAX = (1 << 31) - 1
INT16_MAX = (1 << 15) - 1


class CommandFailed(Exception):
    """A command raised `error`, which is to be reported."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class Range:
    """The valid values of an option or argument, in its `Annotated`; both bounds are inclusive."""

    least: int = 0
    most: int = INT64_MAX

    def check(self, name: str, value: int) -> None:
        """Raise UsageError if `value`, that of the option or argument `name`, is not valid."""
        if value < self.least:
            raise UsageError(f"{name} must be at least {self.least}, not {value}")
        if value > self.most:
            raise UsageError(f"{name} must be at most {self.most}, not {value}")


ANY_NUMBER = Range(-INT64_MAX)
COUNT = Range(1)
NUMBER = Range(0)
# The ids of brokers and the numbers of partitions and replicas are 32-bit.
INT32_COUNT = Range(1, INT32_MAX)
INT32_NUMBER = Range(0, INT32_MAX)


@dataclass(frozen=True, slots=True)
class Kind:
    """The nature of a command, which decides its shared options."""

    # Whether it changes something: adds --dry-run; a read-only profile refuses it.
    changes: bool = False
    # Whether it can destroy data: it shows a plan and asks; adds --yes.
    dangerous: bool = False
    # Whether it prints documents: adds --output.
    has_output: bool = True


READS = Kind()
CHANGES = Kind(changes=True)
DANGEROUS = Kind(changes=True, dangerous=True)
STREAMS = Kind(has_output=False)
Body = Callable[..., int | None]


def remote_command(app: CommandGroup, name: str, kind: Kind = READS) -> Callable[[Body], Body]:
    """Register the decorated function as command `name` of `app`."""

    def decorate(body: Body) -> Body:
        shared = dict(_CONNECT)
        shared |= _OUTPUT if kind.has_output else {}
        shared |= _DRY_RUN if kind.changes else {}
        shared |= _YES if kind.dangerous else {}
        app.add_command(name, inspect.getdoc(body) or "", _wrap(body, shared, kind))
        return body

    return decorate


def local_command(app: CommandGroup, name: str, text: str | None = None) -> Callable[[Body], Body]:
    """Register the decorated function as command `name` of `app`; it connects to no cluster.

    `text` is its help, which otherwise is the function's docstring.
    """

    def decorate(body: Body) -> Body:
        groups = option_groups(body)
        own = list(inspect.signature(body).parameters.values())
        wrapper = guarded(lambda **values: body(**grouped(groups, values)), own)
        _set_parameters(wrapper, own)
        app.add_command(name, text or inspect.getdoc(body) or "", wrapper)
        return body

    return decorate


def guarded(body: Body, parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """Wrap `body`: check the ranges of its numbers, and exit with the status that it returns.

    `parameters` are those of the command. Raise CommandFailed for an exception of `body`.
    """
    own = with_fields(parameters)
    ranges = {it.name: (_shown_name(it), _range_of(it)) for it in own if _range_of(it)}

    def run(*args: object, **kwargs: object) -> None:
        end_imports()
        begin_command()
        try:
            for name, (shown, valid) in ranges.items():
                value = kwargs.get(name)
                for number in value if isinstance(value, list) else [value]:
                    if valid is not None and isinstance(number, int):
                        valid.check(shown, number)
            status = body(*args, **kwargs) or failures.DONE
        except (Exception, KeyboardInterrupt) as error:
            raise CommandFailed(error) from error
        raise Exit(failures.final_status(status))

    return run


def _range_of(parameter: inspect.Parameter) -> Range | None:
    """Return the Range in the annotation of `parameter`; the range of Kafka's numbers if it is a
    number without one, None if it is no number."""
    if get_origin(parameter.annotation) is not Annotated:
        return None
    arms = get_args(parameter.annotation)
    found = next((it for it in arms if isinstance(it, Range)), None)
    if found is None and arms and (arms[0] is int or int in get_args(arms[0])):
        return ANY_NUMBER
    return found


def _shown_name(parameter: inspect.Parameter) -> str:
    info = get_args(parameter.annotation)[1]
    if isinstance(info, Option):
        return option_names(parameter.name, info)[0]
    return str(info.metavar or parameter.name.upper())


def _wrap(body: Body, shared: dict[str, tuple[Any, object]], kind: Kind) -> Callable[..., None]:
    own = list(inspect.signature(body).parameters.values())[1:]
    added = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )
        for name, (annotation, default) in shared.items()
    ]

    groups = option_groups(body)

    def call(**arguments: Any) -> int | None:
        shared_values = {name: arguments.pop(name) for name in shared}
        return body(_make_session(shared_values, kind), **grouped(groups, arguments))

    wrapper = guarded(call, own)
    _set_parameters(wrapper, own + added)
    return wrapper


def _set_parameters(wrapper: Callable[..., None], parameters: list[inspect.Parameter]) -> None:
    """Set the attribute from which `spec.py` reads the parameters of a command."""
    named = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in with_fields(parameters)]
    wrapper.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]


def _make_session(values: dict[str, Any], kind: Kind) -> Session:
    options = ConnectOptions(
        bootstrap_server=values["bootstrap_server"],
        properties=values["properties"] or (),
        profile=values["profile"],
        command_config=values["command_config"],
        timeout=values["timeout"],
        expect_cluster=values["expect_cluster"],
    )
    return Session(
        options,
        Output(values.get("output_format", OutputFormat.TABLE)),
        dry_run=values.get("dry_run", False),
        assume_yes=values.get("yes", False),
        writes=kind.changes,
    )
