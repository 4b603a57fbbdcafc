"""docs/commands.md: every command with its help; `python -m kctl.cli.reference` rewrites it."""

import sys
from pathlib import Path

from kctl.cli.app import COMMANDS, WIDTH_MAX, build_app, help_text
from kctl.cli.quick import find_command
from kctl.cli.spec import commands_of

PATH = Path(__file__).parents[2] / "docs" / "commands.md"
_HEAD = """# kctl's commands

Made from the commands themselves by `python -m kctl.cli.reference`; a test checks that it is
current. Shared by all that talk to a cluster: data go to standard output, words and progress to
standard error; options may stand before or after arguments; nothing asks a question unless both
standard input and standard error are a terminal.

## Where to connect

In this order, the first that says something wins: `-b`, `-X bootstrap.servers=...`, the variable
`KCTL_BOOTSTRAP_SERVER`, the profile (`-C NAME`, `KCTL_PROFILE`, or `default_profile`), the file of
`--command-config`, and last `localhost:9092`. Profiles are in `~/.config/kctl/config.toml`
(`$XDG_CONFIG_HOME` is obeyed):

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

## Formats

`-o table` (the default), `json`, `ndjson`, `yaml`, `csv` or `name` (one name a line, for the next
program). Column and key names are stable. `NO_COLOR` is obeyed.

## Exit status

| status | meaning |
|---|---|
| 0 | done |
| 1 | something failed, be it one item of many |
| 2 | misuse: nothing was done |
| 3 | no broker reachable, or no answer in time |
| 130 | interrupted |

An error is one line `error: ...` on standard error and, where there is a way out, one `hint: ...`
behind it; `KCTL_DEBUG=1` adds the traceback.
"""


def reference() -> str:
    """The whole file."""
    parts = [_HEAD]
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
    """What `kctl PATH --help` prints on a wide terminal."""
    app = build_app(path)
    text = help_text(app, [*path, "--help"], find_command(app, path), WIDTH_MAX)
    assert text is not None
    return text


if __name__ == "__main__":
    PATH.write_text(reference(), encoding="utf-8")
    sys.stderr.write(f"wrote {PATH}\n")
