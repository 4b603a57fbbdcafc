"""The delegation tokens of a cluster in virtual time: their lives, their errors, who sees them."""

from types import SimpleNamespace

import pytest

from kctl.broker.delegation_tokens import DelegationTokens
from kctl.broker.handlers.delegation_tokens import (
    handle_create_delegation_token,
    handle_describe_delegation_token,
    handle_expire_delegation_token,
    handle_renew_delegation_token,
)
from kctl.broker.request import Request, RequestContext
from kctl.broker.security.access import UNRESTRICTED
from kctl.broker.security.authorizer import AclAuthorizer
from kctl.broker.security.client_access import ClientAccess
from kctl.configs.authorizer_settings import AuthorizerSettings
from kctl.configs.broker_config import BrokerConfig
from kctl.model import SecurityProtocol
from kctl.protocol.acl import AclEntry, AclOperation, AclPattern, PermissionType, ResourceType
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from kctl.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from kctl.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kctl.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kctl.protocol.sasl.scram import ScramMechanism
from kctl.store import security_znodes
from kctl.store.cluster_store import ClusterStore
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore
from tests.support.turn_work import CALLS_PER_TURN_MAX, calls_of_longest_turn
from tests.support.virtual_runtime import virtual_runtime

KEY = "the key of all brokers"
HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"
SHA_256 = ScramMechanism.SHA_256
DISABLED = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
NOT_FOUND = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
MISMATCH = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
EXPIRED = ErrorCode.DELEGATION_TOKEN_EXPIRED
INVALID_TYPE = ErrorCode.INVALID_PRINCIPAL_TYPE


class Cluster:
    """Brokers that share a store."""

    def __init__(self):
        self.runtime = virtual_runtime()
        self.database = ZnodeDatabase.in_memory(self.runtime)

    def broker(self, key=KEY, *, is_controller=False, **settings):
        return TokenBroker(self, key, is_controller=is_controller, **settings)

    def settle(self):
        self.runtime.scheduler.settle()

    def advance(self, delay_ms):
        self.runtime.scheduler.advance(delay_ms)


class TokenBroker:
    """One broker; requests go to its handlers as they are after decoding."""

    def __init__(self, cluster, key, *, is_controller, **settings):
        self.runtime = cluster.runtime
        self.cluster = cluster
        configs = {name.replace("_", "."): str(value) for name, value in settings.items()}
        if key is not None:
            configs["delegation.token.master.key"] = key
        self.store = ClusterStore(EmbeddedStore(self.runtime, cluster.database))
        self.tokens = DelegationTokens(self.runtime, BrokerConfig(configs), self.store)
        self.services = SimpleNamespace(runtime=self.runtime, delegation_tokens=self.tokens)
        self.authorizer = None
        self.run(self.store.ensure_persistent_paths())
        self.run(self.tokens.start())
        self.tokens.sweep_while(lambda: is_controller)

    def run(self, coroutine):
        task = self.runtime.scheduler.spawn(coroutine)
        self.cluster.settle()
        return task.result()

    def send(self, handler, body, principal, **context):
        """Return the list that the response arrives in."""
        responses = []
        access = UNRESTRICTED
        if self.authorizer is not None:
            access = ClientAccess(self.authorizer, principal, "10.0.0.7", type(body).api)
        protocol = context.pop("protocol", SecurityProtocol.SASL_PLAINTEXT)
        request = Request(
            api_key=type(body).api, api_version=2, correlation_id=1, client_id="app", body=body,
            context=RequestContext(
                "c", "10.0.0.7", protocol.value, protocol, principal, **context
            ),
            received_ms=0, send=responses.append, close=lambda: None, access=access,
        )  # fmt: skip
        handler(self.services, request)
        return responses

    def ask(self, handler, body, principal=ALICE, **context):
        responses = self.send(handler, body, principal, **context)
        self.cluster.settle()
        (response,) = responses
        return response

    def create(self, renewers=(), max_lifetime_ms=-1, principal=ALICE, **context):
        body = CreateDelegationTokenRequest(
            renewers=[
                CreatableRenewers(principal_type=kind, principal_name=name)
                for kind, _, name in (it.partition(":") for it in renewers)
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        return self.ask(handle_create_delegation_token, body, principal, **context)

    def renew(self, hmac, period_ms=-1, principal=ALICE, **context):
        body = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        return self.ask(handle_renew_delegation_token, body, principal, **context)

    def expire(self, hmac, period_ms=-1, principal=ALICE, **context):
        body = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        return self.ask(handle_expire_delegation_token, body, principal, **context)

    def describe(self, principal=ALICE, owners=None, **context):
        if owners is not None:
            owners = [
                DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
                for kind, _, name in (it.partition(":") for it in owners)
            ]
        body = DescribeDelegationTokenRequest(owners=owners)
        return self.ask(handle_describe_delegation_token, body, principal, **context)

    def ids(self, principal=ALICE, owners=None):
        response = self.describe(principal, owners)
        assert response.error_code == 0
        return {token.token_id for token in response.tokens}

    def logs_in(self, token):
        return self.tokens.credential(SHA_256, token.token_id) is not None

    def stored(self):
        return set(self.run(self.store.get_token_ids()))


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def broker(cluster):
    return cluster.broker()


def all_requests(broker, hmac=b"", **context):
    """Return the error code of each of the four requests."""
    return [
        broker.create(**context).error_code,
        broker.renew(hmac, **context).error_code,
        broker.expire(hmac, **context).error_code,
        broker.describe(**context).error_code,
    ]


# --- who may ask


def test_broker_without_a_master_key_has_no_tokens(cluster):
    broker = cluster.broker(key=None)

    assert all_requests(broker, b"x" * 64) == [DISABLED] * 4


def test_broker_without_a_master_key_refuses_renewers_first(cluster):
    assert cluster.broker(key=None).create(["Group:x"]).error_code == INVALID_TYPE


@pytest.mark.parametrize(
    "context",
    [
        {"protocol": SecurityProtocol.PLAINTEXT},
        {"protocol": SecurityProtocol.PLAINTEXT, "principal": "User:ANONYMOUS"},
        {"protocol": SecurityProtocol.SSL, "principal": "User:ANONYMOUS"},
        {"is_token_authenticated": True},
        {"protocol": SecurityProtocol.SASL_SSL, "is_token_authenticated": True},
    ],
)
@pytest.mark.parametrize("key", [KEY, None])
def test_who_may_not_request_tokens(cluster, context, key):
    """With and without a master key: the connection is judged first."""
    assert all_requests(cluster.broker(key), b"x" * 64, **context) == [NOT_ALLOWED] * 4


@pytest.mark.parametrize("protocol", [SecurityProtocol.SSL, SecurityProtocol.SASL_SSL])
def test_client_with_a_certificate_or_a_password_may(broker, protocol):
    created = broker.create(protocol=protocol)

    assert (created.error_code, created.principal_name) == (0, "alice")


def test_refused_creation_names_the_principal_and_no_times(broker):
    refused = broker.create(["Group:x"])

    assert (refused.error_code, refused.token_id, refused.hmac) == (INVALID_TYPE, "", b"")
    times = (refused.issue_timestamp_ms, refused.expiry_timestamp_ms, refused.max_timestamp_ms)
    assert (refused.principal_name, times) == ("alice", (-1, -1, -1))
    assert broker.stored() == set()


@pytest.mark.parametrize("hmac", [b"", b"x", bytes(64), bytes(65)])
def test_unknown_secrets(broker, hmac):
    broker.create()

    for moved in (broker.renew(hmac), broker.expire(hmac)):
        assert (moved.error_code, moved.expiry_timestamp_ms) == (NOT_FOUND, -1)


def test_owners_and_renewers_move_the_expiry_and_others_do_not(broker):
    hmac = broker.create([BOB]).hmac

    assert broker.renew(hmac, principal=CAROL).error_code == MISMATCH
    assert broker.expire(hmac, principal=CAROL).error_code == MISMATCH
    assert broker.renew(hmac, principal=BOB).error_code == 0
    assert broker.expire(hmac, HOUR_MS, principal=BOB).error_code == 0
    assert broker.expire(hmac, principal=BOB).error_code == 0
    assert broker.renew(hmac).error_code == NOT_FOUND


def test_names_are_equal_only_with_their_type(broker):
    hmac = broker.create([BOB]).hmac

    assert broker.renew(hmac, principal="Group:bob").error_code == MISMATCH
    assert broker.renew(hmac, principal="User:Bob").error_code == MISMATCH


# --- lives


def test_expired_token_does_not_log_in_and_cannot_be_moved(cluster, broker):
    created = broker.create(max_lifetime_ms=2 * DAY_MS)
    cluster.advance(DAY_MS)
    assert broker.logs_in(created)
    cluster.advance(1)

    assert not broker.logs_in(created)
    assert broker.renew(created.hmac).error_code == EXPIRED
    assert broker.expire(created.hmac, HOUR_MS).error_code == EXPIRED
    assert broker.expire(created.hmac).error_code == EXPIRED
    assert broker.renew(created.hmac, principal=CAROL).error_code == MISMATCH


def test_renewals_end_with_the_maximum_lifetime(cluster, broker):
    created = broker.create(max_lifetime_ms=2 * DAY_MS)
    for _ in range(3):
        cluster.advance(DAY_MS * 2 // 3)
        renewed = broker.renew(created.hmac)
        assert renewed.error_code == 0

    assert renewed.expiry_timestamp_ms == created.max_timestamp_ms
    cluster.advance(1)
    assert broker.renew(created.hmac).error_code == EXPIRED


@pytest.mark.parametrize("period_ms", [0, HOUR_MS, 2**63 - 1])
def test_moves_of_the_expiry_are_limited_by_the_maximum(cluster, broker, period_ms):
    created = broker.create(max_lifetime_ms=2 * HOUR_MS)
    now_ms = cluster.runtime.clock.wall_ms()
    expected_ms = min(now_ms + period_ms, created.max_timestamp_ms)

    assert broker.renew(created.hmac, period_ms).expiry_timestamp_ms == expected_ms
    assert broker.expire(created.hmac, period_ms).expiry_timestamp_ms == expected_ms


def test_times_are_those_of_the_settings(cluster):
    broker = cluster.broker(
        delegation_token_max_lifetime_ms=10_000, delegation_token_expiry_time_ms=4_000
    )
    created = broker.create(max_lifetime_ms=99_000)

    assert created.max_timestamp_ms - created.issue_timestamp_ms == 10_000
    assert created.expiry_timestamp_ms - created.issue_timestamp_ms == 4_000
    cluster.advance(3_000)
    assert broker.renew(created.hmac).expiry_timestamp_ms - created.issue_timestamp_ms == 7_000


def test_session_of_a_token_ends_with_it(cluster, broker):
    created = broker.create(max_lifetime_ms=HOUR_MS)
    cluster.advance(HOUR_MS - 500)

    identity = broker.tokens.credential(SHA_256, created.token_id).identity

    assert (identity.user, identity.remaining_ms) == ("alice", 500)
    assert identity.is_token_authenticated


def test_controller_sweeps_expired_tokens(cluster):
    controller, other = cluster.broker(is_controller=True), cluster.broker()
    short = other.create(max_lifetime_ms=HOUR_MS // 2)
    long = other.create(max_lifetime_ms=DAY_MS)
    cluster.advance(HOUR_MS - 1)
    assert controller.stored() == {short.token_id, long.token_id}
    assert short.token_id in controller.ids()
    cluster.advance(1)

    assert controller.stored() == {long.token_id}
    assert controller.ids() == other.ids() == {long.token_id}
    assert other.renew(short.hmac).error_code == NOT_FOUND


def test_other_brokers_do_not_sweep(cluster):
    broker = cluster.broker()
    created = broker.create(max_lifetime_ms=1)
    cluster.advance(2 * HOUR_MS)

    assert broker.stored() == {created.token_id}


def test_sweep_has_its_interval(cluster):
    controller = cluster.broker(is_controller=True, delegation_token_expiry_check_interval_ms=1_000)
    controller.create(max_lifetime_ms=500)
    cluster.advance(1_000)

    assert controller.stored() == set()


def test_closed_broker_does_not_sweep(cluster):
    controller = cluster.broker(is_controller=True)
    created = controller.create(max_lifetime_ms=1)
    controller.tokens.close()
    cluster.advance(2 * HOUR_MS)

    assert controller.stored() == {created.token_id}


# --- who sees a token


def test_users_describe_what_they_own_and_renew(cluster, broker):
    own = broker.create().token_id
    shared = broker.create([BOB]).token_id
    other = broker.create(principal=CAROL).token_id
    broker.authorizer = AclAuthorizer(AuthorizerSettings(), cluster.runtime.trace, lambda: 0)

    assert broker.ids(ALICE) == {own, shared}
    assert broker.ids(BOB) == {shared}
    assert broker.ids(CAROL) == {other}
    assert broker.ids("User:dave") == set()


def test_acls_show_tokens_of_others(cluster, broker):
    first, second = broker.create(), broker.create()
    broker.authorizer = AclAuthorizer(AuthorizerSettings(), cluster.runtime.trace, lambda: 0)

    def allow(name, principal, permission=PermissionType.ALLOW):
        entry = AclEntry(principal, "*", AclOperation.DESCRIBE, permission)
        pattern = AclPattern(ResourceType.DELEGATION_TOKEN, name)
        broker.authorizer.replace(pattern, [*broker.authorizer.index.entries(pattern), entry])

    allow(first.token_id, BOB)
    allow("*", CAROL)
    allow(second.token_id, CAROL, PermissionType.DENY)
    allow(second.token_id, ALICE, PermissionType.DENY)

    assert broker.ids(BOB) == {first.token_id}
    assert broker.ids(CAROL) == {first.token_id}
    assert broker.ids(ALICE) == {first.token_id, second.token_id}
    assert broker.renew(first.hmac, principal=BOB).error_code == MISMATCH


def test_without_an_authorizer_everyone_sees_all_tokens(broker):
    created = broker.create()

    assert broker.ids(BOB) == {created.token_id}


def test_owners_filter_by_owner_and_renewer(broker):
    own = broker.create([BOB]).token_id
    other = broker.create(principal=CAROL).token_id

    assert broker.ids(owners=None) == {own, other}
    assert broker.ids(owners=[]) == set()
    assert broker.ids(owners=[ALICE]) == broker.ids(owners=[BOB]) == {own}
    assert broker.ids(owners=[BOB, CAROL]) == {own, other}
    assert broker.ids(owners=["Group:alice"]) == set()


def test_expired_tokens_are_described_until_they_are_swept(cluster, broker):
    created = broker.create([BOB], max_lifetime_ms=1)
    cluster.advance(10)

    (token,) = broker.describe().tokens
    assert (token.token_id, token.hmac) == (created.token_id, created.hmac)
    assert token.expiry_timestamp == token.max_timestamp == created.max_timestamp_ms
    assert [it.principal_name for it in token.renewers] == ["bob"]


# --- turns of the loop


def most_calls(broker, handler, body, principal=ALICE):
    """Return the response, and the calls of its longest turn."""
    responses = []
    calls = calls_of_longest_turn(
        broker.runtime.scheduler.turn,
        lambda: responses.append(broker.send(handler, body, principal)),
    )
    ((response,),) = responses
    return response, calls


def test_every_owner_of_a_request_is_not_compared_with_every_token(cluster, broker):
    for _ in range(40):
        broker.create([BOB])
    owners = [
        DescribeDelegationTokenOwner(principal_type="User", principal_name=f"absent{number}")
        for number in range(3_000)
    ]
    body = DescribeDelegationTokenRequest(owners=owners)

    response, calls = most_calls(broker, handle_describe_delegation_token, body)

    assert (response.error_code, response.tokens) == (0, [])
    assert calls < CALLS_PER_TURN_MAX


@pytest.mark.parametrize(("tokens", "renewers"), [(30, 1_000), (1, 30_000)])
def test_renewers_are_read_stored_and_described_in_turns(broker, tokens, renewers):
    names = [
        CreatableRenewers(principal_type="User", principal_name=f"renewer {number}")
        for number in range(renewers)
    ]
    body = CreateDelegationTokenRequest(renewers=names, max_lifetime_ms=-1)
    for _ in range(tokens):
        created, calls = most_calls(broker, handle_create_delegation_token, body)
        assert created.error_code == 0
        assert calls < CALLS_PER_TURN_MAX

    body = DescribeDelegationTokenRequest(owners=None)
    response, calls = most_calls(broker, handle_describe_delegation_token, body)

    assert [len(token.renewers) for token in response.tokens] == [renewers] * tokens
    assert response.tokens[-1].renewers[-1].principal_name == f"renewer {renewers - 1}"
    assert calls < CALLS_PER_TURN_MAX


# --- several brokers


def test_brokers_share_tokens(cluster):
    first, second = cluster.broker(), cluster.broker()
    created = first.create()
    assert second.logs_in(created)

    renewed = second.renew(created.hmac, 2 * DAY_MS)
    (known,) = first.describe().tokens
    assert known.expiry_timestamp == renewed.expiry_timestamp_ms
    assert second.expire(created.hmac).error_code == 0
    assert not first.logs_in(created)
    assert first.renew(created.hmac).error_code == NOT_FOUND


def test_broker_loads_tokens_at_its_start(cluster):
    created = cluster.broker().create()

    late = cluster.broker()

    assert late.logs_in(created)
    assert late.renew(created.hmac).error_code == 0


def test_broker_with_another_master_key_knows_no_secret(cluster):
    """T39."""
    good, bad = cluster.broker(), cluster.broker("another key")
    created = good.create()

    assert bad.ids() == {created.token_id}
    assert bad.renew(created.hmac).error_code == NOT_FOUND
    assert bad.expire(created.hmac).error_code == NOT_FOUND
    (seen,) = bad.describe().tokens
    assert seen.hmac != created.hmac
    assert bad.tokens.credential(SHA_256, created.token_id).credential != (
        good.tokens.credential(SHA_256, created.token_id).credential
    )
    assert good.renew(created.hmac).error_code == 0


def test_renewal_does_not_undo_a_deletion_by_another_broker(cluster):
    """Both requests arrive before either broker knows of the other's change."""
    first, second = cluster.broker(), cluster.broker()
    created = first.create()
    deletion = ExpireDelegationTokenRequest(hmac=created.hmac, expiry_time_period_ms=-1)
    renewal = RenewDelegationTokenRequest(hmac=created.hmac, renew_period_ms=-1)

    deleted = first.send(handle_expire_delegation_token, deletion, ALICE)
    renewed = second.send(handle_renew_delegation_token, renewal, ALICE)
    cluster.settle()

    assert [it.error_code for it in deleted] == [0]
    assert [it.error_code for it in renewed] == [NOT_FOUND]
    assert first.stored() == first.ids() == second.ids() == set()
    assert not second.logs_in(created)


def test_unreadable_token_is_ignored(cluster, broker):
    created = broker.create()
    path = security_znodes.delegation_token_path(created.token_id)

    broker.run(broker.store.set_or_create(path, b"{"))
    broker.run(broker.store._announce_token(created.token_id))

    assert broker.ids() == set()
    assert any("is ignored" in it for it in cluster.runtime.trace.warnings)
