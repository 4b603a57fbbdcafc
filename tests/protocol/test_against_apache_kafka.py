"""Every message against Apache Kafka 2.7.2's own classes: bytes, values, and what is refused.

`java/Oracle.java` reads what we wrote, says which value each field has, and writes it again.
"""

import base64
import json
import random  # noqa: TID251 - only ever seeded
import shutil
import subprocess
from pathlib import Path

import pytest

from kctl.errors import CorruptDataError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode, encode
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.json_form import json_name
from kctl.protocol.schema import Struct
from tests.protocol.instances import Instances, all_messages
from tests.protocol.mutations import mutate
from tests.support import apache_kafka

pytestmark = pytest.mark.kafka

ORACLE = Path(__file__).parent / "java" / "Oracle.java"
ROUNDS = 10
MUTATIONS = 10_000
TIMEOUT_S = 300


def ask(*arguments, lines=()):
    """The oracle's answers, one a line."""
    libs = apache_kafka.libs()
    if libs is None:
        pytest.skip("KAFKA_LIBS does not say where the jars of Apache Kafka 2.7.2 are")
    if not shutil.which("java"):
        pytest.skip("there is no Java")
    finished = subprocess.run(
        ["java", "-Xmx512M", "-cp", f"{libs}/*", str(ORACLE), *arguments],
        input="".join(line + "\n" for line in lines),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-2_000:]
    return finished.stdout.splitlines()


def question(api, cls, version, data):
    kind = "request" if cls is api.request_class else "response"
    return f"{int(api)} {kind} {version} {data.hex()}"


def as_json(struct: Struct, version, is_flexible):
    """Return a message's values as Kafka's JSON converters write them."""
    shown = {}
    for field in struct.fields:
        value = getattr(struct, field.name)
        if not field.is_in(version):
            continue
        if field.tag is not None and is_flexible and is_default(struct, field, value):
            continue
        name = json_name(field.name)
        if field.kind == "records" and value is not None and field.name == "record_set":
            value = b""  # never shown
        shown[name] = json_value(value, version, is_flexible)
    return shown


def is_default(struct, field, value):
    return value == getattr(struct.__class__(), field.name)


def json_value(value, version, is_flexible):
    if isinstance(value, Struct):
        return as_json(value, version, is_flexible)
    if isinstance(value, list):
        return [json_value(element, version, is_flexible) for element in value]
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(value).decode()
    return value


@pytest.fixture(scope="module")
def facts():
    return [line.split() for line in ask("facts")]


def test_apis_versions_and_headers_are_apache_kafkas(facts):
    raft = range(52, 56)
    theirs = {
        int(number): rest
        for kind, number, *rest in facts
        if kind == "api" and int(number) not in raft
    }
    ours = {}
    for api in ApiKey:
        headers = [
            f"{api.request_header_version(version)}/{api.response_header_version(version)}"
            for version in range(api.max_version + 1)
        ]
        is_cluster_action = str(api.is_cluster_action).lower()
        ours[int(api)] = [api.title, str(api.max_version), is_cluster_action, *headers]
    assert ours == theirs


def test_error_codes_are_apache_kafkas(facts):
    theirs = [words[1:] for words in facts if words[0] == "error"]
    ours = [[str(int(code)), code.name, str(code.retriable).lower()] for code in ErrorCode]
    assert sorted(ours) == sorted(theirs)


def test_apache_kafka_reads_what_we_write_and_writes_the_same():
    cases = []
    for api, cls, version in all_messages():
        instances = Instances(seed=api * 100 + version)
        for _ in range(ROUNDS):
            message = instances.message(cls, version)
            cases.append((api, cls, version, message, b"".join(encode(message, version))))
    answers = ask(lines=[question(api, cls, v, data) for api, cls, v, _, data in cases])
    for (_, cls, version, message, data), answer in zip(cases, answers, strict=True):
        written, _, values = answer.partition(" ")
        assert written == data.hex(), (cls, version, answer)
        expected = as_json(message, version, version >= cls.flexible_from)
        assert json.loads(values) == expected, (cls, version)


def test_apache_kafka_and_we_make_the_same_of_broken_bytes():
    """What it reads, we read and write the same, or refuse; what it refuses, we refuse."""
    rng = random.Random(272)
    messages = list(all_messages())
    cases = []
    for number in range(MUTATIONS):
        api, cls, version = messages[number % len(messages)]
        message = Instances(seed=number).message(cls, version)
        cases.append((api, cls, version, mutate(b"".join(encode(message, version)), rng)))
    answers = ask(lines=[question(*case) for case in cases])
    both_read = stricter = 0
    for (_, cls, version, data), answer in zip(cases, answers, strict=True):
        is_refused = answer.startswith("refused")
        try:
            message = decode(cls, version, data)
        except CorruptDataError:
            stricter += not is_refused
            continue
        assert not is_refused, (cls, version, data.hex(), answer)
        both_read += 1
        written = answer.partition(" ")[0]
        # Tags that are twice there or out of order it reads, but cannot write.
        assert written == "unwritable" or b"".join(encode(message, version)).hex() == written, (
            cls,
            version,
            data.hex(),
        )
    assert both_read > MUTATIONS / 10
    # Sizes of known tags that lie, varints that overflow: nothing an honest sender does.
    assert stricter < MUTATIONS / 100
