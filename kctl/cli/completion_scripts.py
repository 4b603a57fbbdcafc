"""Completion scripts for bash, zsh and fish, from what the commands declare.

All three work alike: find the command's words, skipping options and their values; then offer what
may stand here: subcommands, options, listed values, files, or names that `kctl __complete` finds.
"""

import shlex
from collections.abc import Mapping, Sequence

from kctl.cli.spec import HELP_OPTIONS, CommandSpec, ParameterSpec, first_line

# Words whose values are names in a cluster, by metavar.
_NAMES = {"TOPIC": "topics", "TOPIC[:P,P]": "topics", "GROUP": "groups"}
_FILES = ("FILE", "DIR", "PATH")
_CONNECT = ("-b", "--bootstrap-server", "-X", "--property", "-C", "--profile", "--command-config")
FILES = "@files"


def source_of(parameter: ParameterSpec, path: tuple[str, ...]) -> str:
    """What completes the value: words, `@topics`, `@groups`, `@profiles`, `@files` or nothing."""
    if parameter.choices:
        return " ".join(parameter.choices)
    metavar = parameter.metavar
    if "--profile" in parameter.options:
        return "@profiles"
    if metavar in ("NAME", "PATTERN"):
        kind = {"topic": "topics", "group": "groups", "config": "topics"}.get(path[0])
        return f"@{kind}" if kind and path[-1] != "create" else ""
    if metavar in _NAMES and path[-1] != "create":
        return "@" + _NAMES[metavar]
    if any(word in metavar.split("|") for word in _FILES):
        return FILES
    return ""


def bash(specs: Sequence[CommandSpec], helps: Mapping[str, str]) -> str:
    """The script for bash 4 and later."""
    tops, groups = _tree(specs, helps)
    value_options = _value_options(specs)
    lines = [
        "# Completion of kctl for bash; made by `kctl completion bash`.",
        "_kctl() {",
        (
            '    local line="${COMP_LINE:0:COMP_POINT}"'
            ' cur="" path="" word="" option="" skip="" count=0'
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
        "                *) (( count++ ));; esac;;",
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
        '            *) offer="--help --version";;',
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
    """The script for zsh."""
    tops, groups = _tree(specs, helps)
    lines = [
        "#compdef kctl",
        "# Completion of kctl for zsh; made by `kctl completion zsh`.",
        "_kctl() {",
        '    local cur="${words[CURRENT]}" found="" word="" skip="" offer="" count=0',
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
        "                (*) (( count++ ));; esac;;",
        "        esac",
        "    done",
        '    if [[ -n "$skip" ]]; then',
        '        case "$found:$skip" in',
        *[line.replace("            ", "            (", 1) for line in _bash_option_cases(specs)],
        "        esac",
        '    elif [[ "$cur" == -* ]]; then',
        '        case "$found" in',
        *_zsh_options(specs),
        "            (*) offers=(--help --version);;",
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
    """The script for fish."""
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
        "    # Whether these are the command's first words.",
        "    set -l found (__kctl_words)",
        "    set -l size (count $argv)",
        '    test "$found[1..$size]" = "$argv"',
        "end",
        "function __kctl_needs",
        "    # Whether exactly these words are there, so that a subcommand comes next.",
        "    set -l found (__kctl_words)",
        '    test "$found" = "$argv"',
        "end",
        "function __kctl_names",
        "    # Names of the cluster that the command line connects to.",
        "    set -l words (commandline -opc)",
        "    set -l connect",
        "    for i in (seq 2 (count $words))",
        "        switch $words[$i]",
        f"            case {' '.join(_CONNECT)}",
        "                set -l next (math $i + 1)",
        "                set -a connect $words[$i] $words[$next]",
        "        end",
        "    end",
        '    $words[1] __complete $argv[1] "" $connect 2>/dev/null',
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
    """First words, and the second words of those that are groups, with a line of help each."""
    groups: dict[str, dict[str, str]] = {}
    for spec in specs:
        if len(spec.path) > 1:
            groups.setdefault(spec.path[0], {})[spec.path[1]] = first_line(spec.help)
    return dict(helps), groups


def _value_options(specs: Sequence[CommandSpec]) -> list[str]:
    """All options that take the next word; none of them is a flag elsewhere."""
    taking = {
        name for spec in specs for it in spec.options if not it.is_flag for name in it.options
    }
    return sorted(taking)


def _all_options(spec: CommandSpec) -> str:
    names = [name for option in spec.options for name in option.options if name.startswith("--")]
    return " ".join(sorted([*names, "--help"]))


def _bash_option_cases(specs: Sequence[CommandSpec]) -> list[str]:
    """`"topic create:--output"|...) offer="table json";;` for options whose values are known."""
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
            # The last argument's source is good for all that follow, if it is a list.
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
    """In double quotes, as bash and zsh both read it; our words need no escapes."""
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
        if source and not argument.is_list and len(spec.arguments) > 1 and argument.choices:
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
