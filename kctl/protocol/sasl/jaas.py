"""JAAS configurations: `sasl.jaas.config` of brokers and clients, parsed. Pure.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";

One login module only, as in Apache Kafka. Modules are known by name; nothing is ever loaded by a
name in a setting (CVE-2023-25194, CVE-2025-27818).

Kafka 2.7: org.apache.kafka.common.security.JaasConfig.
"""

import re
from collections.abc import Iterator, Mapping

from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.sasl.mechanism import (
    AWS_MSK_IAM,
    OAUTHBEARER,
    PLAIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
)

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
# Of aws-msk-iam-auth, for the mechanism AWS_MSK_IAM of clients.
AWS_MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
# Mechanism -> the login module that it needs.
LOGIN_MODULES = {
    PLAIN: PLAIN_MODULE,
    SCRAM_SHA_256: SCRAM_MODULE,
    SCRAM_SHA_512: SCRAM_MODULE,
    OAUTHBEARER: OAUTHBEARER_MODULE,
    AWS_MSK_IAM: AWS_MODULE,
}
_KNOWN_MODULES = tuple(dict.fromkeys(LOGIN_MODULES.values()))

_FLAGS = ("required", "requisite", "sufficient", "optional")
_USER_PREFIX = "user_"

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/      # blanks and comments
    |"(?P<quoted>(?:[^"\\]|\\.)*)"
    |'(?P<single>(?:[^'\\]|\\.)*)'
    |(?P<mark>[=;])
    |(?P<word>[^\s=;"']+)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class JaasConfig:
    """One login module and its options; options are secrets, so `repr` shows their names only."""

    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"JaasConfig(module={self.module!r}, options={sorted(self.options)})"

    @property
    def users(self) -> dict[str, str]:
        """Return the users that a broker's PLAIN module accepts, with their passwords."""
        return {
            name.removeprefix(_USER_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(_USER_PREFIX)
        }


def jaas_text(mechanism: str, options: Mapping[str, str]) -> str:
    """Return the `sasl.jaas.config` of `mechanism` with `options`, which are quoted."""
    pairs = " ".join(f"{key}={_quoted(value)}" for key, value in options.items())
    return f"{LOGIN_MODULES[mechanism]} required {pairs};"


def jaas_config_of(mechanism: str, text: str, name: str = "sasl.jaas.config") -> JaasConfig:
    """Return the parsed `text` of config `name`; raise UsageError if it is malformed or the config
    of another mechanism."""
    try:
        config = parse_jaas_config(text)
    except UsageError as error:
        raise UsageError(f"{name}: {error}", hint=error.hint) from None
    module = LOGIN_MODULES[mechanism]
    if config.module != module:
        raise UsageError(f"{name} names {config.module}", hint=f"{mechanism} needs {module}")
    return config


def parse_jaas_config(text: str) -> JaasConfig:
    """Return the login module and options of `text`; raise UsageError, which shows no secret."""
    tokens = list(_tokens(text))
    if len(tokens) < 3 or tokens[-1] != (";", True):
        raise _malformed("it must be `MODULE required KEY=VALUE ... ;`")
    (module, _), (flag, _), *rest = tokens[:-1]
    if (";", True) in rest:
        raise _malformed("it has more than one login module")
    if flag.lower() not in _FLAGS:
        raise _malformed(f"the module must be followed by one of {', '.join(_FLAGS)}")
    if module == KERBEROS_MODULE:
        raise UsageError("the login module is Krb5LoginModule: GSSAPI is not supported")
    if module not in _KNOWN_MODULES:
        raise UsageError(
            f"{module} is not a login module of Apache Kafka",
            hint=f"use one of {', '.join(_KNOWN_MODULES)}",
        )
    if len(rest) % 3:
        raise _malformed("an option is not KEY=VALUE")
    options: dict[str, str] = {}
    for position in range(0, len(rest), 3):
        (key, _), equals, (value, is_mark) = rest[position : position + 3]
        if equals != ("=", True) or is_mark:
            raise _malformed("an option is not KEY=VALUE")
        options[key] = value
    return JaasConfig(module, options)


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Yield words and marks; True for a mark."""
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise _malformed("a quote is not closed")
        position = found.end()
        quoted = found["quoted"] if found["quoted"] is not None else found["single"]
        if quoted is not None:
            yield re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL), False
        elif found["mark"]:
            yield found["mark"], True
        elif found["word"]:
            yield found["word"], False


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _malformed(reason: str) -> UsageError:
    return UsageError(
        f"malformed JAAS config: {reason}",
        hint=f'e.g. {PLAIN_MODULE} required username="alice" password="...";',
    )
