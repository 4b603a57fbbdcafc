"""Seven clients in nine cells each: every mechanism of SASL with and without TLS, and client
certificates. In each cell a client produces, transacts, and reads all of it in a group, which
commits; one kctl broker has the listeners of all cells, and ACLs that allow this to one user."""

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.secured_brokers import allow_all, make_users
from tests.support.secured_cells import CELLS, USER, Secrets, SecuredKctl
from tests.support.secured_clients import (
    EXPECTED,
    PYTHON_STORIES,
    TIMEOUT_S,
    Login,
    go_outcomes,
    go_program,
    java_outcomes,
    python_outcomes,
)

JAVA = {"java-2.7": "2.7.2", "java-4.1": "4.1.0"}
GO = ("franz-go", "sarama")
CLIENTS = (*JAVA, *PYTHON_STORIES, *GO)
# The group's position after the last record, or after the marker of the last transaction.
POSITIONS = (7, 8)
# (client, cell) -> why the client cannot.
IMPOSSIBLE = {}

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def secrets(tmp_path_factory):
    return Secrets(tmp_path_factory.mktemp("secrets"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory, secrets):
    with SecuredKctl(tmp_path_factory.mktemp("secured"), secrets) as broker:
        plain = broker.address_of("PLAINTEXT")
        make_users(plain, broker.address_of("SASL_PLAINTEXT"))
        allow_all({"bootstrap.servers": plain}, USER)
        topics = [NewTopic(f"{client}-{cell}", 1, 1) for client in CLIENTS for cell in CELLS]
        admin = AdminClient({"bootstrap.servers": plain})
        for made in admin.create_topics(topics).values():
            made.result(TIMEOUT_S)
        yield broker


@pytest.fixture(scope="module")
def go_clients(tmp_path_factory):
    return go_program(tmp_path_factory.mktemp("go"))


@pytest.fixture(scope="module", params=CLIENTS)
def client(request):
    return request.param


@pytest.fixture(scope="module")
def outcomes(request, client, broker, secrets):
    """What the client found, by the name of the cell."""
    cells = [cell for cell in CELLS if (client, cell) not in IMPOSSIBLE]
    logins = [
        Login.of(cell, broker.address_of(cell.listener), secrets, f"{client}-{cell}")
        for cell in cells
    ]
    if client in JAVA:
        return java_outcomes(JAVA[client], logins, secrets, cells)
    if client in GO:
        return go_outcomes(request.getfixturevalue("go_clients"), client, logins)
    return python_outcomes(client, logins)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_client_produces_transacts_and_reads_in_a_group(client, cell, outcomes, broker):
    if (client, cell) in IMPOSSIBLE:
        pytest.skip(IMPOSSIBLE[client, cell])
    assert outcomes[str(cell)] == EXPECTED
    group = f"{client}-{cell}"
    admin = AdminClient({"bootstrap.servers": broker.address_of("PLAINTEXT")})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    (position,) = asked[group].result(TIMEOUT_S).topic_partitions
    assert position.offset in POSITIONS
