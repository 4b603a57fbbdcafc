"""Writes the generated parts of docs/compatibility.md: `python -m tools.compatibility`.

APIs come from ApiKey and HANDLERS; settings from BrokerSettings and TOPIC_CONFIGS, those of Kafka
0.7 from a table of their own. Whether a
setting has an effect is read off the source: an effect is an attribute of that name, looked up on
a broker's or a topic's configuration outside the modules that define it. What has none must be in
IDLE_SETTINGS, or explained by TOPIC_REASONS; a test sees to that, and that the page is current.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from kctl.broker.handlers import HANDLERS
from kctl.broker07.config import SETTINGS as SETTINGS_07
from kctl.configs.broker_configs import BrokerSettings
from kctl.configs.idle_configs import REASONS
from kctl.configs.topic_configs import TOPIC_CONFIGS
from kctl.protocol.api_keys import ApiKey

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
BROKER = ROOT / "kctl" / "broker"
CONFIGS = ROOT / "kctl" / "configs"
TLS = ROOT / "kctl" / "tls"

# Every API without a handler, and why.
NOT_SERVED: dict[ApiKey, str] = {}

# What the effect of a setting is, where it is not what one expects.
NOTES = {
    "authorizer.class.name": "`kafka.security.authorizer.AclAuthorizer`, or its old name"
    " `kafka.security.auth.SimpleAclAuthorizer`; others are refused",
    "queued.max.request.bytes": "`-1`: 64 MiB (Kafka: no limit)",
}
# Why topics' settings have no effect: the first pattern that matches a name explains it.
TOPIC_REASONS: tuple[tuple[str, str], ...] = ()

# Where settings are defined rather than used.
_DEFINITIONS = ("broker_configs.py", "topic_configs.py")


# --- what has an effect


def _root_of(path: Path) -> Path:
    return BROKER if path.is_relative_to(BROKER) else CONFIGS


@cache
def _lookups() -> tuple[tuple[str, str, str], ...]:
    """Return (file below kctl/broker or kctl/configs, owner, attribute) of every look-up there."""
    return tuple(
        (path.relative_to(_root_of(path)).as_posix(), ast.unparse(node.value), node.attr)
        for path in sorted([*BROKER.rglob("*.py"), *CONFIGS.glob("*.py")])
        if path.name not in _DEFINITIONS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    )


def _is_topic_level(file: str, owner: str) -> bool:
    return file.startswith("log/") or owner.endswith("log.config")


_QUOTAS = BROKER / "replication" / "quotas_by_config.py"


@cache
def _words() -> frozenset[object]:
    """Constants in the controller, which reads topics' settings from the store by name, and of the
    throttles, which follow them by name."""
    return _constants(*(BROKER / "controller").glob("*.py"), _QUOTAS)


def _constants(*paths: Path) -> frozenset[object]:
    return frozenset(
        node.value
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
    )


@cache
def effective_topic_settings() -> frozenset[str]:
    """Names of the topic settings that something looks up."""
    by_attribute = {name.replace(".", "_"): name for name in TOPIC_CONFIGS}
    return frozenset(TOPIC_CONFIGS.keys() & _words()) | frozenset(
        by_attribute[attribute]
        for file, owner, attribute in _lookups()
        if attribute in by_attribute
        and _is_topic_level(file, owner)
        and (owner.endswith("config") or (file, owner) == ("log/log_config.py", "self"))
    )


@cache
def effective_settings() -> dict[str, str]:
    """Name of each broker setting that has an effect -> on what, if that is only on topics."""
    by_attribute = {attribute: name for name, attribute in BrokerSettings.ATTRIBUTES.items()}
    found = {
        by_attribute[attribute]: ""
        for file, owner, attribute in _lookups()
        if attribute in by_attribute
        and not _is_topic_level(file, owner)
        # broker_config.py itself looks settings up only to derive from them what the broker uses.
        and (
            owner.split(".")[-1].endswith("config")
            or (file, owner) == ("broker_config.py", "self")
            or file in ("listener_config.py", "listener_security.py")
        )
    }
    # Settings of TLS are looked up by name.
    constants = _constants(*TLS.glob("*.py"))
    found.update({name: "" for name in BrokerSettings.KEYS if name in constants})
    found.update({name: note for name, note in NOTES.items() if name in found})
    for name, topic_config in TOPIC_CONFIGS.items():
        if topic_config.broker_config and name in effective_topic_settings():
            found[topic_config.broker_config] = f"default of a topic's `{name}`"
    return found


def topic_reason(name: str) -> str | None:
    """Return why the topic config has no effect, or None without a known reason."""
    return next((reason for pattern, reason in TOPIC_REASONS if re.match(pattern, name)), None)


# --- the parts of the page


def api_table() -> Iterator[str]:
    """Every API of Kafka 2.7: which versions are served, and by which module."""
    served = len(HANDLERS)
    yield f"{served} of the {len(ApiKey)} APIs of Kafka 2.7 are served, each in all its versions."
    yield ""
    yield "| key | API | in Kafka 2.7 | in kctl | handled in |"
    yield "|---:|---|---|---|---|"
    for key in ApiKey:
        versions = f"{key.min_version}-{key.max_version}" if key.max_version else "0"
        handler = HANDLERS.get(key)
        if handler is None:
            ours, where = "no", NOT_SERVED[key]
        else:
            ours, where = versions, f"`{handler.__module__.removeprefix('kctl.broker.')}`"
        yield f"| {int(key)} | {key.title} | {versions} | {ours} | {where} |"


def effective_settings_table() -> Iterator[str]:
    """The broker's settings that have an effect."""
    effective = effective_settings()
    yield f"{len(effective)} of the {len(BrokerSettings.KEYS)} settings have an effect:"
    yield ""
    yield "| setting | default | effect |"
    yield "|---|---|---|"
    for name, key in BrokerSettings.KEYS.items():
        if name in effective:
            default = key.format(key.default)
            yield f"| `{name}` | {f'`{default}`' if default else ''} | {effective[name] or 'yes'} |"


def idle_settings_table() -> Iterator[str]:
    """The broker's settings without effect, by reason."""
    yield from _by_reason(REASONS)


def topic_settings_table() -> Iterator[str]:
    """The settings of topics: with effect, and without by reason."""
    effective = [name for name in TOPIC_CONFIGS if name in effective_topic_settings()]
    idle = [name for name in TOPIC_CONFIGS if name not in effective_topic_settings()]
    yield f"With effect: {', '.join(f'`{name}`' for name in effective)}."
    yield ""
    groups: dict[str, list[str]] = {}
    for name in idle:
        groups.setdefault(topic_reason(name) or "?", []).append(name)
    if groups:
        yield from _by_reason(groups)


def _by_reason(groups: Mapping[str, Iterable[str]]) -> Iterator[str]:
    yield "| without effect | settings |"
    yield "|---|---|"
    for reason, members in groups.items():
        yield f"| {reason} | {', '.join(f'`{name}`' for name in members)} |"


def settings_07_table() -> Iterator[str]:
    """The settings of Kafka 0.7's brokers, and what they do here."""
    yield "| setting | default | what it does |"
    yield "|---|---|---|"
    for setting in SETTINGS_07:
        effect = setting.note if setting.field is not None else f"nothing: {setting.note}"
        yield f"| `{setting.name}` | {setting.default} | {effect} |"


PARTS = {
    "apis": api_table,
    "settings": effective_settings_table,
    "idle-settings": idle_settings_table,
    "topic-settings": topic_settings_table,
    "settings-07": settings_07_table,
}


def current(page: str) -> str:
    """The page with its generated parts as they should be."""
    for name, lines in PARTS.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        before, _, rest = page.partition(begin)
        after = rest.partition(end)[2]
        page = "\n".join((f"{before}{begin}", *lines(), "", f"{end}{after}"))
    return page


def main() -> int:
    """Rewrite the page in place."""
    PAGE.write_text(current(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
