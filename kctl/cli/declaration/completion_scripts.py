"""Writes the completion scripts for bash, zsh and fish from the declarations of the commands.

All three scripts first find the command before the cursor, skipping options and their values. Then
they offer what is valid at the cursor: subcommands, options, listed values, files, or names that
`kctl __complete` prints.
"""

import shlex
from collections.abc import Mapping, Sequence

from kctl.cli.declaration.spec import HELP_OPTIONS, CommandSpec, ParameterSpec, summary

# Metavars whose values are names in a cluster.
_NAMES = {
    "TOPIC": "topics",
    "TOPIC[:P,P]": "topics",
    "GROUP": "groups",
    "FROM": "groups",
    "BROKER": "brokers",
    "PROFILE": "profiles",
    "COMMAND": "commands",
}
_FILES = ("FILE", "DIR", "PATH", "SOURCE", "TABLE")
# The names of `kctl config describe TYPE NAME` depend on the word before them, which the scripts
# append to this kind.
CONFIG = "@config"
_CONNECT = ("-b", "--bootstrap-server", "-X", "--property", "-C", "--profile", "--command-config")
FILES = "@files"


def source_of(parameter: ParameterSpec, path: tuple[str, ...]) -> str:
    """Return what completes a value: choices, `@files`, the kind of names that `kctl __complete`
    prints (`@topics`, ...), or ""."""
    if parameter.choices:
        return " ".join(parameter.choices)
    metavar = parameter.metavar.removesuffix("...")
    if "--profile" in parameter.options:
        return "@profiles"
    if metavar in ("NAME", "PATTERN"):
        if path[0] == "config":
            return CONFIG
        kind = {"topic": "topics", "group": "groups", "txn": "ids"}.get(path[0])
        return f"@{kind}" if kind and path[-1] != "create" else ""
    if metavar == "ID" and path[0] == "txn":
        return "@ids"
    if metavar in _NAMES and path[-1] not in ("create", "add"):
        return "@" + _NAMES[metavar]
    if any(word in metavar.split("|") for word in _FILES):
        return FILES
    return ""


def bash(specs: Sequence[CommandSpec], helps: Mapping[str, str]) -> str:
    """Return the script for bash 4 and later."""
    tops, groups = _tree(specs, helps)
    value_options = _value_options(specs)
    lines = [
        "# Completion of kctl for bash; made by `kctl completion bash`.",
        "_kctl() {",
        (
            '    local line="${COMP_LINE:0:COMP_POINT}"'
            ' cur="" path="" word="" last="" option="" skip="" count=0'
        ),
        "    local -a words=() connect=()",
        '    read -ra words <<< "$line"',
        '    [[ "$line" == *[[:space:]] ]] || { cur="${words[-1]}"; unset "words[-1]"; }',
        '    for word in "${words[@]:1}"; do',
        '        if [[ -n "$skip" ]]; then',
        f'            case "$skip" in {"|".join(_CONNECT)}) connect+=("$skip" "$word");; esac',
        '            skip=""',
        "            continue",
        "        fi",
        '        case "$word" in',
        f'            {"|".join(value_options)}) skip="$word";;',
        "            -*) ;;",
        f'            *) case "$path" in ""|{"|".join(groups)}) path="${{path:+$path }}$word";;',
        '                *) (( count++ )); last="$word";; esac;;',
        "        esac",
        "    done",
        '    option="$skip"',
        '    local offer=""',
        '    if [[ -n "$option" ]]; then',
        '        case "$path:$option" in',
        *_bash_option_cases(specs),
        "        esac",
        '    elif [[ "$cur" == -* ]]; then',
        '        case "$path" in',
        *[
            f"            {_quote(' '.join(spec.path))}) offer={_quote(_all_options(spec))};;"
            for spec in specs
        ],
        '            *) offer="--help --help-json --version";;',
        "        esac",
        "    else",
        '        case "$path:$count" in',
        f'            ":0") offer={_quote(" ".join(tops))};;',
        *[
            f"            {name}:0) offer={_quote(' '.join(children))};;"
            for name, children in groups.items()
        ],
        *_bash_argument_cases(specs),
        "        esac",
        "    fi",
        '    case "$offer" in',
        (
            "        @files) compopt -o filenames 2>/dev/null;"
            ' mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return;;'
        ),
        (
            f'        {CONFIG}) offer="$("${{words[0]}}" __complete "config-$last" "$cur"'
            ' "${connect[@]}" 2>/dev/null)";;'
        ),
        (
            '        @*) offer="$("${words[0]}" __complete "${offer#@}" "$cur"'
            ' "${connect[@]}" 2>/dev/null)";;'
        ),
        "    esac",
        '    mapfile -t COMPREPLY < <(compgen -W "$offer" -- "$cur")',
        "}",
        "complete -F _kctl kctl",
    ]
    return "\n".join(lines) + "\n"


def zsh(specs: Sequence[CommandSpec], helps: Mapping[str, str]) -> str:
    """Return the script for zsh."""
    tops, groups = _tree(specs, helps)
    lines = [
        "#compdef kctl",
        "# Completion of kctl for zsh; made by `kctl completion zsh`.",
        "_kctl() {",
        '    local cur="${words[CURRENT]}" found="" word="" last="" skip="" offer="" count=0',
        "    local -a connect=() offers=()",
        '    for word in "${(@)words[2,CURRENT-1]}"; do',
        '        if [[ -n "$skip" ]]; then',
        f'            case "$skip" in ({"|".join(_CONNECT)}) connect+=("$skip" "$word");; esac',
        '            skip=""',
        "            continue",
        "        fi",
        '        case "$word" in',
        f'            ({"|".join(_value_options(specs))}) skip="$word";;',
        "            (-*) ;;",
        (
            f'            (*) case "$found" in (""|{"|".join(groups)})'
            ' found="${found:+$found }$word";;'
        ),
        '                (*) (( count++ )); last="$word";; esac;;',
        "        esac",
        "    done",
        '    if [[ -n "$skip" ]]; then',
        '        case "$found:$skip" in',
        *[line.replace("            ", "            (", 1) for line in _bash_option_cases(specs)],
        "        esac",
        '    elif [[ "$cur" == -* ]]; then',
        '        case "$found" in',
        *_zsh_options(specs),
        "            (*) offers=(--help --help-json --version);;",
        "        esac",
        "        _describe -o option offers",
        "        return",
        "    else",
        '        case "$found:$count" in',
        f'            (":0") offers=({_described(tops)}); _describe command offers; return;;',
        *[
            f"            ({name}:0) offers=({_described(children)});"
            " _describe command offers; return;;"
            for name, children in groups.items()
        ],
        *[line.replace("            ", "            (", 1) for line in _bash_argument_cases(specs)],
        "        esac",
        "    fi",
        '    case "$offer" in',
        "        (@files) _files; return;;",
        f'        ({CONFIG}) offer="@config-$last";;',
        "    esac",
        '    case "$offer" in',
        (
            '        (@*) offers=(${(f)"$(${words[1]} __complete "${offer#@}" "$cur"'
            ' "${connect[@]}" 2>/dev/null)"});;'
        ),
        "        (*) offers=(${=offer});;",
        "    esac",
        '    compadd -- "${offers[@]}"',
        "}",
        'if [[ "$funcstack[1]" == "_kctl" ]]; then _kctl "$@"; else compdef _kctl kctl; fi',
    ]
    return "\n".join(lines) + "\n"


def fish(specs: Sequence[CommandSpec], helps: Mapping[str, str]) -> str:
    """Return the script for fish."""
    tops, groups = _tree(specs, helps)
    lines = [
        "# Completion of kctl for fish; made by `kctl completion fish`.",
        "function __kctl_words",
        "    # The command's words before the cursor, without options and their values.",
        "    set -l skip 0",
        "    for word in (commandline -opc)[2..-1]",
        "        if test $skip = 1",
        "            set skip 0",
        "            continue",
        "        end",
        "        switch $word",
        f"            case {' '.join(_value_options(specs))}",
        "                set skip 1",
        "            case '-*'",
        "            case '*'",
        "                echo $word",
        "        end",
        "    end",
        "end",
        "function __kctl_at",
        "    # Whether the command begins with these words.",
        "    set -l found (__kctl_words)",
        "    set -l size (count $argv)",
        '    test "$found[1..$size]" = "$argv"',
        "end",
        "function __kctl_needs",
        "    # Whether the command is exactly these words, so that a subcommand comes next.",
        "    set -l found (__kctl_words)",
        '    test "$found" = "$argv"',
        "end",
        "function __kctl_names",
        "    # Names in the cluster that the command line connects to.",
        "    set -l words (commandline -opc)",
        "    set -l connect",
        "    for i in (seq 2 (count $words))",
        "        switch $words[$i]",
        f"            case {' '.join(_CONNECT)}",
        "                set -l next (math $i + 1)",
        "                set -a connect $words[$i] $words[$next]",
        "        end",
        "    end",
        "    set -l kind $argv[1]",
        "    if test $kind = config",
        "        set kind config-(__kctl_words)[3]",
        "    end",
        '    $words[1] __complete $kind "" $connect 2>/dev/null',
        "end",
        "complete -c kctl -f",
        *[_fish_word("__kctl_needs", name, text) for name, text in tops.items()],
    ]
    for name, children in groups.items():
        lines += [_fish_word(f"__kctl_needs {name}", c, text) for c, text in children.items()]
    for spec in specs:
        lines += _fish_command(spec)
    return "\n".join(lines) + "\n"


def _tree(
    specs: Sequence[CommandSpec], helps: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return the help lines of the commands, and by group those of the group's commands."""
    groups: dict[str, dict[str, str]] = {}
    for spec in specs:
        if len(spec.path) > 1:
            groups.setdefault(spec.path[0], {})[spec.path[1]] = summary(spec.help).rstrip(".")
    return dict(helps), groups


def _value_options(specs: Sequence[CommandSpec]) -> list[str]:
    """Return all options that take a value; none of them is a flag in another command."""
    taking = {
        name for spec in specs for it in spec.options if not it.is_flag for name in it.options
    }
    return sorted(taking)


def _all_options(spec: CommandSpec) -> str:
    names = [name for option in spec.options for name in option.options if name.startswith("--")]
    return " ".join(sorted([*names, "--help"]))


def _bash_option_cases(specs: Sequence[CommandSpec]) -> list[str]:
    """Return lines `"topic create:--output"|...) offer="table json";;` for options' values."""
    by_source: dict[str, list[str]] = {}
    for spec in specs:
        for option in spec.options:
            source = "" if option.is_flag else source_of(option, spec.path)
            if source:
                by_source.setdefault(source, []).extend(
                    f"{' '.join(spec.path)}:{name}" for name in option.options
                )
    return [
        f"            {'|'.join(map(_quote, places))}) offer={_quote(source)};;"
        for source, places in by_source.items()
    ]


def _bash_argument_cases(specs: Sequence[CommandSpec]) -> list[str]:
    lines = []
    for spec in specs:
        for index, argument in enumerate(spec.arguments):
            source = source_of(argument, spec.path)
            # A list argument's source also applies to the arguments that follow.
            place = _quote(" ".join(spec.path) + ":") + ("*" if argument.is_list else str(index))
            if source:
                lines.append(f"            {place}) offer={_quote(source)};;")
    return lines


def _zsh_options(specs: Sequence[CommandSpec]) -> list[str]:
    lines = []
    for spec in specs:
        options = {
            name: option.help
            for option in spec.options
            for name in option.options
            if name.startswith("--")
        }
        options["--help"] = "Show help"
        lines.append(
            f"            ({_quote(' '.join(spec.path))}) offers=({_described(options)});;"
        )
    return lines


def _described(words: Mapping[str, str]) -> str:
    texts = [f"{word}:{_one_line(text)}".replace("\\", "") for word, text in words.items()]
    return " ".join(map(shlex.quote, texts))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _quote(text: str) -> str:
    """Quote `text` for bash and zsh; commands and options contain no character to escape."""
    return f'"{text}"'


def _fish_word(condition: str, word: str, text: str) -> str:
    return (
        f"complete -c kctl -n {shlex.quote(condition)} -a {shlex.quote(word)} "
        f"-d {_fish_quote(_one_line(text))}"
    )


def _fish_command(spec: CommandSpec) -> list[str]:
    start = f"complete -c kctl -n {shlex.quote('__kctl_at ' + ' '.join(spec.path))}"
    lines = []
    for option in spec.options:
        parts = [start]
        parts += [
            f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
            for name in option.options
        ]
        if not option.is_flag:
            parts.append("-r " + _fish_source(source_of(option, spec.path)))
        parts.append(f"-d {_fish_quote(_one_line(option.help))}")
        lines.append(" ".join(" ".join(parts).split()))
    lines.append(f"{start} -s h -l {HELP_OPTIONS[0][2:]} -d 'Show help'")
    for place, argument in enumerate(spec.arguments):
        source = source_of(argument, spec.path)
        if place == 0 and argument.choices and len(spec.arguments) > 1:
            exact = f"__kctl_needs {' '.join(spec.path)}"
            lines.append(f"complete -c kctl -n {shlex.quote(exact)} {_fish_source(source)}")
        elif source and place:
            words = " ".join(spec.path)
            later = f"__kctl_at {words}; and not __kctl_needs {words}"
            lines.append(f"complete -c kctl -n {shlex.quote(later)} {_fish_source(source)}")
        elif source:
            lines.append(f"{start} {_fish_source(source)}")
    return lines


def _fish_source(source: str) -> str:
    if source == FILES:
        return "-F"
    if source.startswith("@"):
        return f"-f -a '(__kctl_names {source[1:]})'"
    return f"-f -a {shlex.quote(source)}" if source else "-f"


def _fish_quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
