"""Mistakes of users: command lines, their exit status, and what the message must name.

`GENERATED` is made from the declarations of all commands and needs no cluster; `ON_A_CLUSTER` needs
a broker with the topic {topic} of three partitions and the group {group}; {dir}, {file} and
{missing} are paths. All names that begin with `no-such` do not exist.
"""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from kctl.cli.app import COMMANDS, build_app
from kctl.cli.declaration.spec import CommandSpec, ParameterSpec, commands_of

_GROUPS = {row.name for row in COMMANDS if row.is_group}
# `int` refuses them, and `float` makes infinity of them.
_MANY_DIGITS = "9" * 5000


class Mistake(NamedTuple):
    """A command line and the expected result."""

    line: str
    status: int
    # A part of the message; it names the thing.
    names: str

    @property
    def command(self) -> str:
        """Return the command that the line runs."""
        words = self.line.split()
        return " ".join(words[:2]) if words[0] in _GROUPS else words[0]


# A line that parses, for every command: further mistakes are added to it.
VALID = {
    "serve": "",
    "demo": "",
    "produce": "t v",
    "consume": "t --exit",
    "dump-log": "{dir}",
    "verify-log": "{dir}",
    "repair-log": "{dir}",
    "export": "--topic t --out {missing}",
    "import": "{file} --topic t",
    "completion": "bash",
    "man": "--out {missing}",
    "help": "topic",
    "version": "",
    "topic create": "t",
    "topic list": "",
    "topic describe": "t",
    "topic alter": "t -p 3",
    "topic delete": "t -y",
    "topic purge": "t -y",
    "topic offsets-07": "t:0",
    "records delete": "t --before 5 -y",
    "profile add": "p -b localhost:9092",
    "profile use": "p",
    "profile login": "p",
    "profile list": "",
    "profile show": "p",
    "profile remove": "p",
    "apply": "{yaml} -y",
    "api": "Metadata",
    "config describe": "topic t",
    "config alter": "topic t -c retention.ms=5 -y",
    "group reset-offsets": "g -t t --to-earliest -y",
    "group export-offsets": "g",
    "group import-offsets": "{csv} -g g -y",
    "group clone-offsets": "g h -y",
    "group delete-offsets": "g -t t -y",
    "group describe": "g",
    "top": "topics --once",
    "log-stats": "-t t",
    "group lag": "g",
    "group list": "",
    "mirror run": "--source s:1 --target t:1 --topics t --once",
    "mirror plan": "--source s:1 --target t:1 --topics t",
    "mirror status": "--source s:1 --target t:1",
    "mirror switch": "g --source s:1 --target t:1 -y",
    "mirror translate": "g --source s:1 --target t:1",
    "mirror watch": "--source s:1 --target t:1",
    "mirror verify": "--source s:1 --target t:1 --topics t",
    "link create": "t --source east --from s:1 -y",
    "link list": "",
    "link describe": "t",
    "link failover": "t -y",
    "link resume": "t -y",
    "group delete": "g -y",
    "group migrate": "g --to kafka --zookeeper localhost:2181 -y",
    "group rebalance-check": "g --zookeeper localhost:2181",
    "txn list": "",
    "txn describe": "x",
    "txn hanging": "",
    "txn abort": "x -y",
    "elect preferred": "--all",
    "elect unclean": "--all -y",
    "reassign plan": "drain 1",
    "reassign execute": "{plan} -y",
    "reassign watch": "",
    "reassign verify": "{plan}",
    "reassign cancel": "--all -y",
    "reassign list": "",
    "reassign kafka": "--list",
    "quota list": "",
    "quota top": "--once",
    "quota set": "--user x --produce 1MB",
    "quota remove": "--user x -y",
    "throttle show": "",
    "throttle set": "1MB",
    "throttle sweep": "-y",
    "cluster describe": "",
    "cluster health": "",
    "metrics serve": "",
    "cluster quorum": "",
    "cluster features": "",
    "cluster upgrade-features": "metadata.version=1 -y",
    "broker describe": "",
    "broker decommission": "1 -y",
    "broker demote": "1 -y",
    "broker list": "",
    "broker stop": "1",
    "broker kill": "1",
    "broker restart": "1",
    "acl list": "",
    "acl add": "alice read topic:t",
    "acl remove": "alice read topic:t -y",
    "acl check": "alice read topic:t",
    "user list": "",
    "user create": "u --password-file {file}",
    "user delete": "u -y",
    "user passwd": "u --password-file {file}",
    "token list": "",
    "token create": "--renewer u --max-lifetime 1d",
    "token renew": "t --for 1h",
    "token expire": "t -y",
}
# Commands that connect to no broker with their line in VALID.
_LOCAL = {"verify-log", "repair-log", "import", "profile add", "group rebalance-check"}
_DEAD = "-b 127.0.0.1:1"
_TOO_LARGE = str(10**30)


def _connects(spec: CommandSpec) -> bool:
    return any(it.name == "bootstrap_server" for it in spec.options)


def _of_command(spec: CommandSpec) -> Iterator[Mistake]:
    """Yield the mistakes that can be made with any command."""
    path = " ".join(spec.path)
    valid = f"{path} {VALID[path]}".rstrip()
    yield Mistake(f"{valid} --no-such-option", 2, "--no-such-option")
    for argument in spec.arguments:
        if argument.is_required:
            yield Mistake(path, 2, "Missing")
            break
    if all(it.is_required and not it.is_list for it in spec.arguments):
        yield Mistake(f"{valid} too-many", 2, "too-many")
    with_value = next((it for it in spec.options if not it.is_flag), None)
    if with_value is not None:
        yield Mistake(f"{valid} {with_value.options[0]}", 2, with_value.options[0])
    for option in spec.options:
        yield from _of_option(valid, option)
    if _connects(spec) and path not in _LOCAL:
        yield Mistake(f"{valid} -b host:no-port", 2, "host:no-port")
        yield Mistake(f"{valid} {_DEAD} --timeout 2s", 3, "127.0.0.1:1")


def _of_option(valid: str, option: ParameterSpec) -> Iterator[Mistake]:
    if option.is_flag:
        return
    name = option.options[0]
    if issubclass(option.value_type, Enum) and option.name != "output_format":
        yield Mistake(f"{valid} {name} no-such-choice", 2, "no-such-choice")
    if option.value_type is int:
        yield Mistake(f"{valid} {name} many", 2, name)
        yield Mistake(f"{valid} {name} {_TOO_LARGE}", 2, name)


def specs() -> list[CommandSpec]:
    """Return every command."""
    return list(commands_of(build_app([], everything=True)))


def generated() -> list[Mistake]:
    """Return the mistakes that are made from the declarations."""
    known = [spec for spec in specs() if " ".join(spec.path) in VALID]
    return [mistake for spec in known for mistake in _of_command(spec)]


WITHOUT_A_CLUSTER = [
    Mistake("no-such-command", 2, "no-such-command"),
    Mistake("topik list", 2, "topik"),
    Mistake("topic no-such-command", 2, "no-such-command"),
    Mistake("topic list --timeout soon", 2, "soon"),
    Mistake("topic list --timeout 0", 2, "--timeout"),
    Mistake("topic list -X security.protocol", 2, "security.protocol"),
    Mistake("topic list -X foo.bar=1", 2, "foo.bar"),
    Mistake("topic list -X clinet.id=1", 2, "clinet.id"),
    Mistake("topic list -C no-such-profile", 2, "no-such-profile"),
    Mistake("topic list --command-config {missing}", 2, "{missing}"),
    Mistake("topic list -o no-such-format", 2, "no-such-format"),
    Mistake("topic list -b ''", 2, "bootstrap"),
    Mistake("topic list -b host:no-port", 2, "host:no-port"),
    Mistake("topic list -b host:99999", 2, "host:99999"),
    # Digits that are no numbers, and numbers that nothing holds.
    Mistake("topic list -b host:²", 2, "host:²"),
    Mistake(f"topic list --timeout {_MANY_DIGITS}", 2, _MANY_DIGITS),
    Mistake(f"metrics serve --interval {_MANY_DIGITS}", 2, _MANY_DIGITS),
    Mistake(f"group lag g --fail-above {_MANY_DIGITS}", 2, _MANY_DIGITS),
    Mistake("profile add p -b ²:²", 2, "²:²"),
    Mistake("produce t v --timestamp 99999999999999999999999", 2, "99999999999999999999999"),
    Mistake("produce t v --timestamp=-99999999999999d", 2, "99999999999999d"),
    Mistake("consume t --offset @99999999999999999999999", 2, "99999999999999999999999"),
    Mistake("consume t --offset @²²²²²²²²²²²²", 2, "²²²²²²²²²²²²"),
    Mistake(f"consume t --offset {_MANY_DIGITS}", 2, _MANY_DIGITS),
    Mistake(f"consume t -p {_MANY_DIGITS}", 2, _MANY_DIGITS),
    Mistake("reassign plan drain ²", 2, "²"),
    Mistake("reassign plan set-rf t ²", 2, "²"),
    Mistake("reassign plan move t:0 ² 1", 2, "²"),
    Mistake("reassign plan swap-leader t:0 ²", 2, "²"),
    Mistake("reassign plan log-dirs ²", 2, "log-dirs"),
    Mistake("top --once --metrics :²", 2, ":²"),
    Mistake("serve --seed-topic t:²", 2, "t:²"),
    Mistake("config describe broker ²", 2, "²"),
    Mistake(f"topic purge t:{_MANY_DIGITS}", 2, _MANY_DIGITS),
    Mistake("topic create t -p 99999999999", 2, "--partitions"),
    Mistake("topic create t -p 0", 2, "--partitions"),
    Mistake("topic create t -r 0", 2, "--replication-factor"),
    Mistake("topic create t -r 40000", 2, "--replication-factor"),
    Mistake("topic create t --replica-assignment 1:x", 2, "1:x"),
    Mistake("topic create t --replica-assignment 1:2 -p 3", 2, "--replica-assignment"),
    Mistake("topic create t -c retention.ms", 2, "retention.ms"),
    Mistake("topic alter t", 2, "Nothing to alter"),
    Mistake("topic alter t -p 0", 2, "--partitions"),
    Mistake("topic purge t:x", 2, "t:x"),
    Mistake("topic purge t --before yesterday", 2, "yesterday"),
    Mistake("records delete t", 2, "Missing"),
    Mistake("records delete --before 5", 2, "Missing"),
    Mistake("records delete t --before yesterday", 2, "yesterday"),
    Mistake("records delete t --offset-json-file {plan}", 2, "--offset-json-file"),
    Mistake("records delete --offset-json-file {missing}", 2, "{missing}"),
    Mistake("records delete --offset-json-file {file}", 2, "{file}"),
    Mistake("records delete --offset-json-file {plan}", 2, "offset"),
    Mistake("api", 2, "--list"),
    Mistake("api Metadata --list", 2, "--list"),
    Mistake("api Metadta", 2, "Metadta"),
    Mistake("api Metadata {{", 2, "JSON"),
    Mistake("api Metadata @{missing}", 2, "{missing}"),
    Mistake("api Metadata @{file}", 2, "{file}"),
    Mistake("api Metadata -o csv", 2, "csv"),
    Mistake("api Metadata --version -1", 2, "--version"),
    Mistake("profile add p -b host:no-port", 2, "host:no-port"),
    Mistake("profile add p -b localhost:9092 -X foo.bar=1", 2, "foo.bar"),
    Mistake("profile add p -b localhost:9092 --timeout soon", 2, "soon"),
    Mistake("profile add p -b h:1 --password-env A --password-file b", 2, "one password"),
    Mistake("profile use no-such-profile", 2, "no-such-profile"),
    Mistake("profile login no-such-profile", 2, "no-such-profile"),
    Mistake("profile show no-such-profile", 2, "no-such-profile"),
    Mistake("profile remove no-such-profile", 2, "no-such-profile"),
    Mistake("apply {missing}", 2, "{missing}"),
    Mistake("help no-such-command", 2, "no-such-command"),
    Mistake("man --out {file}", 2, "{file}"),
    Mistake("apply {file}", 2, "{file}"),
    Mistake("apply {csv}", 2, "{csv}"),
    Mistake("config alter topic t", 2, "Nothing to alter"),
    Mistake("config alter topic t -c x", 2, "x"),
    Mistake("config describe no-such-type t", 2, "no-such-type"),
    Mistake("config describe broker one", 2, "one"),
    Mistake("consume t -p 99999999999", 2, "99999999999"),
    Mistake("consume t -p x", 2, "x"),
    Mistake("consume t -p -1", 2, "-1"),
    Mistake("consume t --offset 5..2", 2, "5..2"),
    Mistake("consume t --offset -5..-20", 2, "-5..-20"),
    Mistake("consume t --offset latest..5", 2, "latest..5"),
    Mistake("consume t --offset @2026-01-02..@2026-01-01", 2, "@2026-01-02..@2026-01-01"),
    Mistake("consume t --offset 99999999999999999999", 2, "99999999999999999999"),
    Mistake("consume t --offset yesterday", 2, "yesterday"),
    Mistake("consume t --offset 5 --from-beginning", 2, "--from-beginning"),
    Mistake("consume t -f '{value'", 2, "{value"),
    Mistake("consume t -f 'value}'", 2, "value}"),
    Mistake("consume t -f '{no_such_field}'", 2, "no_such_field"),
    Mistake("consume t -f '{value}' -o json", 2, "--format"),
    Mistake("consume t -m 0", 2, "--max-messages"),
    Mistake("consume t -g g --offset 5", 2, "--group"),
    Mistake("consume t --zookeeper localhost:2181", 2, "--group"),
    Mistake("consume t -g g --zookeeper localhost:2181 --exit", 2, "--exit"),
    Mistake("consume t -g g --zookeeper localhost:2181 --isolation read_committed", 2, "--iso"),
    Mistake("consume t --read-committed --isolation read_uncommitted", 2, "--isolation"),
    Mistake("produce t v -H no-value", 2, "no-value"),
    Mistake("produce t v -p -1", 2, "--partition"),
    Mistake("produce t v --timestamp noon", 2, "noon"),
    Mistake("group describe g --members --by-topic", 2, "--members"),
    Mistake("group describe g --watch -o json", 2, "--watch"),
    Mistake("group describe g --watch --every 0", 2, "--every"),
    Mistake("group lag g --watch -o json", 2, "--watch"),
    Mistake("group lag g --watch --fail-above soon", 2, "soon"),
    Mistake("group lag g --every 0", 2, "--every"),
    Mistake("group lag g --fail-above soon", 2, "soon"),
    Mistake("top topics --once --every 0", 2, "--every"),
    Mistake("top topics -o json", 2, "--once"),
    Mistake("group reset-offsets g -t t", 2, "target"),
    Mistake("group reset-offsets g --to-earliest", 2, "topics"),
    Mistake("group reset-offsets g -t t:x --to-earliest", 2, "t:x"),
    Mistake("group reset-offsets g -t t --to-earliest --to-latest", 2, "target"),
    Mistake("group reset-offsets g -t t --to-offset -5", 2, "--to-offset"),
    Mistake("group reset-offsets g -t t --to-datetime noon", 2, "noon"),
    Mistake("group reset-offsets g --from-file {missing}", 2, "{missing}"),
    Mistake("group import-offsets {missing}", 2, "{missing}: No such file"),
    Mistake("group import-offsets {dir}", 2, "{dir}: Is a directory"),
    Mistake("group import-offsets {file}", 2, "{file}"),
    Mistake("group clone-offsets g g", 2, "g"),
    Mistake("group delete-offsets g", 2, "topics"),
    Mistake("group migrate g --to kafka", 2, "--zookeeper"),
    Mistake("group migrate g --zookeeper localhost:2181", 2, "--to"),
    Mistake("group migrate --to kafka --zookeeper localhost:2181", 2, "'*'"),
    Mistake("group migrate g --rollback {file} --zookeeper localhost:2181", 2, "--rollback"),
    Mistake("group migrate --rollback {missing} --zookeeper localhost:2181", 2, "{missing}"),
    Mistake("group migrate --rollback {file} --zookeeper localhost:2181", 2, "{file}"),
    Mistake("group list --state Empty --zookeeper localhost:2181", 2, "--state"),
    Mistake("group describe --by-topic --zookeeper localhost:2181", 2, "--by-topic"),
    Mistake("group export-offsets g --format xml", 2, "xml"),
    Mistake("group import-offsets {file} --zookeeper localhost:2181", 2, "{file}"),
    Mistake("txn abort", 2, "transactional ids"),
    Mistake("txn abort --topic t", 2, "--partition"),
    Mistake("txn abort x --partition 1", 2, "--topic"),
    Mistake("txn abort --topic t --partition -1", 2, "--partition"),
    Mistake("elect preferred", 2, "partitions"),
    Mistake("elect preferred t:x", 2, "t:x"),
    Mistake("elect preferred t --all", 2, "partitions"),
    Mistake("reassign plan no-such-intent", 2, "no-such-intent"),
    Mistake("reassign plan drain x", 2, "x"),
    Mistake("reassign execute {missing}", 2, "{missing}"),
    Mistake("reassign execute {file}", 2, "{file}"),
    Mistake("reassign execute {plan} --throttle fast", 2, "fast"),
    Mistake("reassign verify {missing}", 2, "{missing}"),
    Mistake("reassign cancel", 2, "cancel"),
    Mistake("reassign watch --interval 0", 2, "--interval"),
    Mistake("reassign kafka", 2, "--generate"),
    Mistake("quota top --once --metrics file:///etc/passwd", 2, "http"),
    Mistake("quota top --once --metrics :x", 2, ":x"),
    Mistake("quota top --once --metrics-token-file {file}", 2, "--metrics"),
    Mistake("quota set --user x", 2, "No quota to set"),
    Mistake("quota set --produce 1MB", 2, "Whose quota?"),
    Mistake("quota set --user x --default-user --produce 1MB", 2, "exclude each other"),
    Mistake("quota set --user x --request nan", 2, "above 0"),
    Mistake("quota set --user x --mutations=-1", 2, "above 0"),
    Mistake("quota remove --user x --quota speed -y", 2, "speed"),
    Mistake("throttle set fast", 2, "fast"),
    Mistake("throttle set 0", 2, "0"),
    Mistake("broker decommission one", 2, "BROKER"),
    Mistake("broker describe one", 2, "BROKER"),
    Mistake("broker demote 1 --undo-file {file}", 2, "exists already"),
    Mistake("broker describe -- -1", 2, "BROKER"),
    Mistake("broker list -D {missing}", 3, "{missing}"),
    Mistake("broker stop 1 -D {missing}", 3, "{missing}"),
    Mistake("dump-log {missing}", 2, "{missing}"),
    Mistake("dump-log", 2, "PATH"),
    Mistake("dump-log {dir} --offset 5 --tail 3", 2, "--tail"),
    Mistake("dump-log {dir} --offset 5..2", 2, "5..2"),
    Mistake("dump-log {dir} --tail 0", 2, "--tail"),
    Mistake("dump-log {dir} --key-pattern (", 2, "("),
    Mistake("serve --metrics-token-file {file}", 2, "--metrics-port"),
    Mistake("mirror run --source s:1 --target t:1 -t t --metrics-tls {file}", 2, "--metrics-port"),
    Mistake("metrics serve --metrics-tls {missing}", 2, "{missing}"),
    Mistake("metrics serve --probe-topic t --probe-interval 1ms", 2, "--probe-interval"),
    Mistake("metrics serve --create-probe-topic", 2, "--probe-topic"),
    Mistake("log-stats {missing}", 2, "{missing}"),
    Mistake("log-stats {dir} -b localhost:9092", 2, "PATH"),
    Mistake("verify-log {missing}", 2, "{missing}"),
    Mistake("verify-log {dir} -j -1", 2, "--jobs"),
    Mistake("verify-log {dir} -j 0", 2, "--jobs"),
    Mistake("repair-log {missing}", 2, "{missing}"),
    Mistake("repair-log {dir} --rebuild no-such-file", 2, "no-such-file"),
    Mistake("repair-log {dir} --cut x", 2, "x"),
    Mistake("export {missing} --out {missing}", 2, "{missing}"),
    Mistake("export --out {missing}", 2, "SOURCE"),
    Mistake("export {dir} --out {missing} -p x", 2, "x"),
    Mistake("export {dir} --out {missing} --offset 5..2", 2, "5..2"),
    Mistake("export {dir} --out {missing} -j -1", 2, "--jobs"),
    Mistake("export {dir} --out {missing} --every 5s", 2, "--follow"),
    Mistake("export {dir} --out {missing} --compact-to 1MiB", 2, "--follow"),
    Mistake("export {dir} --out {missing} --metrics-port 0", 2, "--follow"),
    Mistake("export {dir} --out {missing} --metrics-tls x", 2, "--follow"),
    Mistake("export --follow {dir} --out {missing} --metrics-token-file x", 2, "--metrics-port"),
    Mistake("export --follow {dir} --out {missing} --every 0", 2, "--every"),
    Mistake("export --follow {dir} --out {missing} --jobs 2", 2, "--jobs"),
    Mistake("export --follow {dir} --out {missing} --offset 1..5", 2, "1..5"),
    Mistake("export --follow {dir} --out {missing} --latest-per-key", 2, "--latest-per-key"),
    Mistake("import {missing} --topic t", 2, "{missing}"),
    Mistake("import {file} --topic t -j 0", 2, "--jobs"),
    Mistake("completion no-such-shell", 2, "no-such-shell"),
    Mistake("completion install no-such-shell", 2, "no-such-shell"),
    Mistake("serve --port 99999", 2, "--port"),
    Mistake("serve --brokers 0", 2, "--brokers"),
    Mistake("serve --brokers 1000", 2, "--brokers"),
    Mistake("serve --config {missing}", 2, "{missing}"),
]  # fmt: skip

ON_A_CLUSTER = [
    Mistake("topic describe no-such-topic", 1, "no-such-topic"),
    Mistake("topic alter no-such-topic -p 3", 1, "no-such-topic"),
    Mistake("topic alter no-such-topic -c retention.ms=5 -y", 1, "no-such-topic"),
    Mistake("topic delete no-such-topic -y", 1, "no-such-topic"),
    Mistake("topic create {topic} -r 1", 1, "{topic}"),
    Mistake("produce {topic} -f {dir}", 2, "Cannot read {dir}: Is a directory"),
    Mistake("topic create no/slash -r 1", 1, "no/slash"),
    Mistake("topic create t-new -r 9", 1, "t-new"),
    Mistake("topic create t-new -r 1 -c no.such.config=1", 1, "no.such.config"),
    Mistake("topic alter {topic} -p 1", 1, "{topic}"),
    Mistake("topic alter {topic} -c no.such.config=1", 1, "no.such.config"),
    Mistake("topic delete {topic}", 2, "--yes"),
    Mistake("topic purge no-such-topic -y", 1, "no-such-topic"),
    Mistake("topic purge {topic}:99 -y", 1, "99"),
    Mistake("topic purge {topic} --before 99999 -y", 1, "99999"),
    Mistake("apply {yaml} -y", 1, "t-new"),
    Mistake("topic list --expect-cluster no-such-cluster", 1, "no-such-cluster"),
    Mistake("api Metadata --broker 99", 1, "99"),
    Mistake("api Metadata --version 99", 2, "99"),
    Mistake("records delete no-such-topic --before 1 -y", 1, "no-such-topic"),
    Mistake("records delete {topic}:99 --before 1 -y", 1, "99"),
    Mistake("records delete {topic} --before 99999 -y", 1, "99999"),
    Mistake("config describe topic no-such-topic", 1, "no-such-topic"),
    Mistake("config describe topic {topic} no.such.config", 1, "no.such.config"),
    Mistake("config describe broker 99", 1, "99"),
    Mistake("config alter broker 99 -c log.cleaner.threads=2", 1, "99"),
    Mistake("config alter topic no-such-topic -c retention.bytes=5 -y", 1, "no-such-topic"),
    Mistake("config describe logger 99", 1, "99"),
    Mistake("consume no-such-topic --exit", 1, "no-such-topic"),
    Mistake("consume {topic} -p 99 --exit", 1, "99"),
    Mistake("consume no-such-topic -g g --exit", 1, "no-such-topic"),
    Mistake("produce no-such-topic v", 1, "no-such-topic"),
    Mistake("produce {topic} v -p 99", 1, "99"),
    Mistake("produce {topic} -f {missing}", 2, "{missing}"),
    Mistake("export --topic no-such-topic --out {missing}", 1, "no-such-topic"),
    Mistake("export --topic {topic} -p 99 --out {missing}", 1, "99"),
    Mistake("group describe no-such-group", 1, "no-such-group"),
    Mistake("group delete no-such-group -y", 1, "no-such-group"),
    Mistake("group delete {group}", 2, "--yes"),
    Mistake("group export-offsets no-such-group", 1, "no-such-group"),
    Mistake("group export-offsets {group} -t no-such-topic", 1, "no-such-topic"),
    Mistake("group clone-offsets no-such-group g2 -y", 1, "no-such-group"),
    Mistake("group delete-offsets no-such-group -t {topic} -y", 1, "no-such-group"),
    Mistake("group delete-offsets {group} -t no-such-topic -y", 1, "no-such-topic"),
    Mistake("group reset-offsets {group} -t no-such-topic --to-earliest -y", 1, "no-such-topic"),
    Mistake("group reset-offsets {group} -t {topic}:99 --to-earliest -y", 1, "99"),
    Mistake("group reset-offsets {group} -t {topic} --to-earliest", 2, "--yes"),
    Mistake("group list --state no-such-state", 2, "no-such-state"),
    Mistake("txn describe no-such-id", 1, "no-such-id"),
    Mistake("txn abort no-such-id -y", 1, "no-such-id"),
    Mistake("txn abort --topic no-such-topic --partition 0 -y", 1, "no-such-topic"),
    Mistake("txn abort --topic {topic} --partition 99 -y", 1, "99"),
    Mistake("txn hanging --topic no-such-topic", 1, "no-such-topic"),
    Mistake("elect preferred no-such-topic", 1, "no-such-topic"),
    Mistake("elect preferred {topic}:99", 1, "99"),
    Mistake("elect unclean no-such-topic -y", 1, "no-such-topic"),
    Mistake("reassign plan drain 99", 1, "99"),
    Mistake("reassign plan add 99", 1, "99"),
    Mistake("reassign plan set-rf no-such-topic 1", 1, "no-such-topic"),
    Mistake("reassign plan rebalance --topic no-such-topic", 1, "no-such-topic"),
    Mistake("reassign execute {plan} -y", 1, "no-such-topic"),
    Mistake("broker describe 99", 1, "99"),
    Mistake("broker decommission 99 -y", 1, "99"),
    Mistake("broker demote 99 -y", 1, "99"),
    Mistake("verify-log --replicas no-such-topic", 1, "no-such-topic"),
]  # fmt: skip
