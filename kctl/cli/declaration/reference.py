"""Writes docs/commands.md, the help of every command: `python -m ...declaration.reference`."""

import sys
from pathlib import Path

from kctl.cli.app import COMMANDS, WIDTH_MAX, build_app, help_text
from kctl.cli.declaration.quick import find_command
from kctl.cli.declaration.spec import commands_of
from kctl.cli.failures import ExitStatus

PATH = Path(__file__).parents[3] / "docs" / "commands.md"
_HEAD = """# kctl's commands

Generated from the commands by `python -m kctl.cli.declaration.reference`; a test checks that it is
current. Commands write data to standard output, messages and progress to standard error, and accept
options before or after arguments. They ask questions only if both standard input and standard error
are a terminal.

## Where to connect

The first of these that names brokers is used: `-b`, `-X bootstrap.servers=...`, the variable
`KCTL_BOOTSTRAP_SERVER`, the profile (`-C NAME`, `KCTL_PROFILE`, or `default_profile`), the file of
`--command-config`, and finally `localhost:9092`. Profiles are in
`$XDG_CONFIG_HOME/kctl/config.toml`, by default `~/.config/kctl/config.toml`. `kctl profile` edits
this file and leaves comments as they are:

```toml
default_profile = "dev"

[profiles.dev]
bootstrap_servers = ["localhost:9092"]
timeout = "10s"

[profiles.prod]
bootstrap_servers = ["kafka-1:9092", "kafka-2:9092"]
[profiles.prod.properties]
"client.id" = "ops"
```

A profile may hold a reference to a password instead of the password itself: `password-file`,
`password-command` and `password-env` stand for `sasl.password`, and `ssl.key.password-file` and so
on for other passwords. kctl reads it when it connects. A file that contains a password itself must
not be open to other users (mode 0600). `kctl profile show` hides passwords.

A cluster that has options of its own beside another cluster (both of `kctl mirror`, the source of
`kctl link create`) is named by these only: `KCTL_BOOTSTRAP_SERVER`, `KCTL_PROFILE` and
`default_profile` do not count for it, nor does `localhost:9092`.

## Which cluster may be changed

Three rules protect a cluster from a command that was meant for another one:

- `expect-cluster = "ID"` in the profile, `--expect-cluster` or `KCTL_EXPECT_CLUSTER`: every command
  stops before its first request if the cluster has another id. Of two clusters, the variable is
  about the one that changes: the target, or the source of `kctl mirror switch --back`.
- `read-only = true` in the profile: commands that write are refused before they connect, and the
  client sends no request that could write.
- `confirm = "by-name"` in the profile: a dangerous command asks for the name of the profile, and
  `--yes` counts only together with `--expect-cluster`.

`kctl cluster describe` shows the id. `--dry-run` is allowed with a read-only profile.

## Formats

`-o table` (the default), `json`, `ndjson`, `yaml`, `csv` or `name` (one name per line, for other
programs). The names of columns and keys are stable. `NO_COLOR` disables colors.
Tables fit the terminal: the widest cells are wrapped, and if the columns do not fit, each row is a
block of lines. Pipes, files and other formats get whole values, one row per line.

## Exit status

| status | meaning |
|---|---|
{statuses}

The same mistake has the same status in every command:

| what happened | status |
|---|---|
| an unknown option, a missing argument, an invalid value, options that contradict each other | 2 |
| a file or directory that the command line names is missing or malformed | 2 |
| a plan was not confirmed, as there is no terminal and no `--yes` | 2 |
| a topic, partition, broker, group, transactional id or config that does not exist | 1 |
| a broker rejected the request, or its version of Kafka does not support it | 1 |
| some of several items failed; the others were done | 1 |
| damage was found (`verify-log`, `dump-log`), replicas differ, `cluster health` has findings | 1 |
| no broker is reachable, a host is unknown, a response did not arrive within `--timeout` | 3 |
| the port speaks another protocol (HTTP, TLS) | 3 |
| Ctrl-C; SIGTERM | 130; 143 |
| the reader of the output closed it, as `head` does | 141 |

An error is a line `error: ...` on standard error, followed by a line `hint: ...` if there is a
remedy. `KCTL_DEBUG=1` adds the traceback.
"""


def _status_rows() -> str:
    return "\n".join(f"| {status:d} | {status.meaning} |" for status in ExitStatus)


def reference() -> str:
    """Return the text of docs/commands.md."""
    parts = [_HEAD.replace("{statuses}", _status_rows())]
    specs = list(commands_of(build_app([], everything=True)))
    paths: list[tuple[str, ...]] = [()]
    for row in COMMANDS:
        paths += [(row.name,)] if row.is_group else []
        paths += [spec.path for spec in specs if spec.path[0] == row.name]
    for path in paths:
        name = " ".join(("kctl", *path))
        parts.append(f"## {name}\n\n```text\n{help_of(path).strip()}\n```\n")
    return "\n".join(parts)


def help_of(path: tuple[str, ...]) -> str:
    """Return what `kctl PATH --help` prints on a wide terminal."""
    app = build_app(path)
    text = help_text(app, [*path, "--help"], find_command(app, path), WIDTH_MAX)
    assert text is not None
    return text


if __name__ == "__main__":
    PATH.write_text(reference(), encoding="utf-8")
    sys.stderr.write(f"wrote {PATH}\n")
