"""Clients that run the story of a cell: produce, transact, and read all of it in a group.

A story takes a Login and returns the values that the group found. The stories of one client run at
the same time in one process: `java/SecuredClients.java`, `go/secured` and, for Python, this one.
"""

import asyncio
import json
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.support import apache_kafka
from tests.support.aiokafka_clients import started
from tests.support.identity_provider import now_s
from tests.support.secured_brokers import USERS
from tests.support.secured_cells import OAUTHBEARER, USER, Cell, Secrets

TIMEOUT_S = 60
# kafka-python 3.0.12 stays in a rebalance forever if a poll ends while it joins a second time,
# which it does once it has the metadata of its topic. A poll returns as soon as there are records.
KAFKA_PYTHON_POLL_MS = 20_000
PLAIN_VALUES = ("p0", "p1", "p2")
ABORTED_VALUE = "x"
COMMITTED_VALUES = ("t0", "t1")
EXPECTED = [*PLAIN_VALUES, *COMMITTED_VALUES]
JAVA_PROGRAM = Path(__file__).parent / "java" / "SecuredClients.java"
GO_SOURCES = Path(__file__).parent / "go" / "secured"
JAVA_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


@dataclass(frozen=True)
class Login:
    """How a client reaches a cell, and the topic, which names the group and the transactions."""

    name: str
    bootstrap: str
    protocol: str
    mechanism: str
    user: str
    password: str
    token: str
    ca_file: str
    client_file: str
    topic: str

    @classmethod
    def of(cls, cell: Cell, address: str, secrets: Secrets, topic: str) -> "Login":
        bearer = secrets.token(cell) if cell.mechanism == OAUTHBEARER else ""
        return cls(
            str(cell), address, cell.protocol, cell.mechanism, USER, USERS[USER], bearer,
            secrets.ca_file, secrets.client_file if cell.has_certificate else "", topic,
        )  # fmt: skip

    @property
    def has_tls(self) -> bool:
        return self.protocol != "SASL_PLAINTEXT"


def outcome_of(story, login: Login):
    """The values that the story found, or its error as text."""
    try:
        return story(login)
    except Exception as error:  # noqa: BLE001 - of any client
        return f"{type(error).__name__}: {error}"


# --- librdkafka


def librdkafka_settings(login: Login) -> dict:
    settings = {"bootstrap.servers": login.bootstrap, "security.protocol": login.protocol}
    if login.mechanism:
        settings["sasl.mechanism"] = login.mechanism
    if login.token:
        settings["oauth_cb"] = lambda _: (login.token, now_s() + 3600)
    elif login.mechanism:
        settings |= {"sasl.username": login.user, "sasl.password": login.password}
    if login.has_tls:
        settings["ssl.ca.location"] = login.ca_file
    if login.client_file:
        settings["ssl.key.location"] = settings["ssl.certificate.location"] = login.client_file
    return settings


def librdkafka_story(login: Login) -> list[str]:
    from confluent_kafka import Consumer, Producer

    settings, topic = librdkafka_settings(login), login.topic
    producer = Producer(settings)
    for value in PLAIN_VALUES:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    producer = Producer({**settings, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, ABORTED_VALUE)
    assert producer.flush(TIMEOUT_S) == 0
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    for value in COMMITTED_VALUES:
        producer.produce(topic, value)
    producer.commit_transaction(TIMEOUT_S)
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found, deadline = [], time.monotonic() + TIMEOUT_S
    while len(found) < len(EXPECTED) and time.monotonic() < deadline:
        found += [it.value().decode() for it in consumer.consume(10, 0.1) if it.error() is None]
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


# --- kafka-python


def kafka_python_settings(login: Login) -> dict:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self):
            return login.token

    settings = python_settings(login)
    if login.token:
        settings["sasl_oauth_token_provider"] = Provider()
    if login.has_tls:
        settings["ssl_cafile"] = login.ca_file
    if login.client_file:
        settings["ssl_certfile"] = settings["ssl_keyfile"] = login.client_file
    return settings


def python_settings(login: Login) -> dict:
    """What kafka-python and aiokafka have in common."""
    settings = {"bootstrap_servers": login.bootstrap, "security_protocol": login.protocol}
    if login.mechanism:
        settings["sasl_mechanism"] = login.mechanism
    if login.mechanism and not login.token:
        settings |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
    return settings


def kafka_python_story(login: Login) -> list[str]:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    settings, topic = kafka_python_settings(login), login.topic
    producer = KafkaProducer(**settings)
    for value in PLAIN_VALUES:
        producer.send(topic, value.encode()).get(TIMEOUT_S)
    producer.close()
    producer = KafkaProducer(transactional_id=topic, **settings)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, ABORTED_VALUE.encode()).get(TIMEOUT_S)
    producer.abort_transaction()
    producer.begin_transaction()
    for value in COMMITTED_VALUES:
        producer.send(topic, value.encode())
    producer.commit_transaction()
    producer.close()
    consumer = KafkaConsumer(
        group_id=topic, auto_offset_reset="earliest", isolation_level="read_committed",
        enable_auto_commit=False, **settings,
    )  # fmt: skip
    try:
        # kafka-python 3.0.12 may join before it has the topic's metadata. It then assigns nothing,
        # and does not always assign again.
        consumer.partitions_for_topic(topic)
        consumer.subscribe([topic])
        found, deadline = [], time.monotonic() + TIMEOUT_S
        while len(found) < len(EXPECTED) and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=KAFKA_PYTHON_POLL_MS).values():
                found += [record.value.decode() for record in records]
        commit_position(consumer, TopicPartition(topic, 0))
    finally:
        # Otherwise its thread connects again and again for the rest of the tests.
        consumer.close()
    return found


def commit_position(consumer, partition) -> None:
    """Commit, again after a rebalance."""
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    deadline = time.monotonic() + TIMEOUT_S
    offsets = {partition: OffsetAndMetadata(consumer.position(partition), "", -1)}
    while True:
        try:
            return consumer.commit(offsets)
        except KafkaError:
            if time.monotonic() > deadline:
                raise
        consumer.poll(timeout_ms=KAFKA_PYTHON_POLL_MS)


# --- aiokafka


def aiokafka_settings(login: Login) -> dict:
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.helpers import create_ssl_context

    class Provider(AbstractTokenProvider):
        async def token(self):
            return login.token

    settings = python_settings(login)
    if login.token:
        settings["sasl_oauth_token_provider"] = Provider()
    if login.has_tls:
        pair = {"certfile": login.client_file, "keyfile": login.client_file}
        settings["ssl_context"] = create_ssl_context(
            cafile=login.ca_file, **(pair if login.client_file else {})
        )
    return settings


async def aiokafka_coroutine(login: Login) -> list[str]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    settings, topic = aiokafka_settings(login), login.topic
    async with started(AIOKafkaProducer(**settings)) as producer:
        for value in PLAIN_VALUES:
            await producer.send_and_wait(topic, value.encode())
    async with started(AIOKafkaProducer(transactional_id=topic, **settings)) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, ABORTED_VALUE.encode())
        await producer.abort_transaction()
        async with producer.transaction():
            for value in COMMITTED_VALUES:
                await producer.send(topic, value.encode())
    consumer = AIOKafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", isolation_level="read_committed",
        enable_auto_commit=False, **settings,
    )  # fmt: skip
    async with started(consumer):
        found = [(await consumer.getone()).value.decode() for _ in EXPECTED]
        await consumer.commit()
        return found


def aiokafka_story(login: Login) -> list[str]:
    return asyncio.run(asyncio.wait_for(aiokafka_coroutine(login), TIMEOUT_S))


# --- programs


def run_program(command, logins) -> dict[str, object]:
    """Run a program that reads a login as JSON a line, and writes an outcome as JSON a line."""
    done = subprocess.run(
        list(map(str, command)),
        input="".join(json.dumps(login) + "\n" for login in logins),
        capture_output=True, text=True, check=False, timeout=4 * TIMEOUT_S,
    )  # fmt: skip
    outcomes = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            outcome = json.loads(line)
            outcomes[outcome["name"]] = outcome["found"] or outcome["error"]
    assert len(outcomes) == len(logins), done.stderr[-3000:]
    return outcomes


def java_outcomes(version: str, logins, secrets: Secrets, cells) -> dict[str, object]:
    """Run the stories with the Java client of `version`."""
    if apache_kafka.libs(version) is None:
        pytest.skip(f"no jars: python tests/support/apache_kafka.py {version}")
    given = []
    for cell, login in zip(cells, logins, strict=True):
        settings = secrets.java_settings(cell) | {"bootstrap.servers": login.bootstrap}
        if cell.has_signed_tokens and version >= "3.1":
            settings |= {
                "sasl.oauthbearer.token.endpoint.url": secrets.token_file.as_uri(),
                "sasl.login.callback.handler.class": JAVA_HANDLER,
            }
        token = login.token if cell.has_signed_tokens and version < "3.1" else ""
        given.append(
            {"name": login.name, "topic": login.topic, "token": token, "settings": settings}
        )
    *options, _ = apache_kafka.java_command(version, "-", level="ERROR")
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
    where = [
        f"{allowed}.urls={secrets.token_file.as_uri()}",
        f"{allowed}.files={secrets.token_file}",
    ]
    return run_program([options[0], *where, *options[1:], JAVA_PROGRAM], given)


def go_program(directory: Path) -> Path:
    """Build the program of franz-go and sarama; skip the test where that is impossible."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go to compile the clients with")
    module = directory / "secured"
    shutil.copytree(GO_SOURCES, module)
    run = {"cwd": module, "capture_output": True, "text": True, "timeout": 400}
    fetched = subprocess.run([go, "mod", "download"], check=False, **run)
    if fetched.returncode:
        pytest.skip(f"the Go clients cannot be fetched: {fetched.stderr[-200:]}")
    built = subprocess.run([go, "build", "-o", "program", "."], check=False, **run)
    assert built.returncode == 0, built.stderr
    return module / "program"


def go_outcomes(program: Path, client: str, logins) -> dict[str, object]:
    return run_program([program, client], [asdict(login) for login in logins])


PYTHON_STORIES = {
    "librdkafka": librdkafka_story,
    "kafka-python": kafka_python_story,
    "aiokafka": aiokafka_story,
}


def python_outcomes(client: str, logins) -> dict[str, object]:
    story = PYTHON_STORIES[client]
    with ThreadPoolExecutor(len(logins)) as pool:
        outcomes = pool.map(lambda login: outcome_of(story, login), logins)
        return {login.name: it for login, it in zip(logins, outcomes, strict=True)}
