"""The 14 APIs of security, quotas and features on brokers without security: kctl answers as Apache
Kafka 2.7.2 does (T1)."""

import uuid

import pytest

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages import (
    add_partitions_to_txn,
    alter_client_quotas,
    alter_user_scram_credentials,
    create_acls,
    create_delegation_token,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_delegation_token,
    describe_user_scram_credentials,
    expire_delegation_token,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    update_features,
)
from tests.support.twin_requests import HIGHEST

SALT = b"0123456789abcdef"


def versions(api):
    return pytest.mark.parametrize("version", HIGHEST[api])


@pytest.fixture
def user():
    return f"user {uuid.uuid4().hex[:8]}*"


@versions(ApiKey.SASL_HANDSHAKE)
@pytest.mark.parametrize("mechanism", ["PLAIN", "", "SCRAM-SHA-256"])
def test_sasl_handshake(twins, version, mechanism):
    answer = twins.ask(sasl_handshake.SaslHandshakeRequest(mechanism=mechanism), version)
    assert answer["error_code"] == 34


@versions(ApiKey.SASL_AUTHENTICATE)
def test_sasl_authenticate(twins, version):
    request = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
    assert twins.ask(request, version)["error_code"] == 34


def acl(kind, **fields):
    names = {
        "resource_type": 2, "resource_name": "t", "resource_pattern_type": 3,
        "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3, **fields,
    }  # fmt: skip
    return kind(**names)


def acl_filter(kind, **fields):
    names = {
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
        "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
        **fields,
    }  # fmt: skip
    return kind(**names)


@pytest.mark.parametrize("version", [1, 2])
def test_acls_without_an_authorizer(twins, version):
    twins.ask(acl_filter(describe_acls.DescribeAclsRequest), version)
    for count in (0, 1, 2):
        creations = [acl(create_acls.AclCreation) for _ in range(count)]
        twins.ask(create_acls.CreateAclsRequest(creations=creations), version)
        filters = [acl_filter(delete_acls.DeleteAclsFilter) for _ in range(count)]
        twins.ask(delete_acls.DeleteAclsRequest(filters=filters), version)


@versions(ApiKey.CREATE_DELEGATION_TOKEN)
def test_delegation_tokens_on_a_plaintext_connection(twins, version):
    twins.ask(create_delegation_token.CreateDelegationTokenRequest(max_lifetime_ms=-1), version)
    twins.ask(
        renew_delegation_token.RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1), version
    )
    twins.ask(
        expire_delegation_token.ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1),
        version,
    )
    twins.ask(describe_delegation_token.DescribeDelegationTokenRequest(owners=None), version)


# --- features ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "updates",
    [
        [],
        [("group.version", 1, False)],
        [("group.version", 0, False)],
        [("group.version", 0, True)],
        [("group.version", -1, True)],
        [("", 1, False)],
        [("a", 1, False), ("b", 2, True)],
    ],
)
def test_update_features(twins, updates):
    request = update_features.UpdateFeaturesRequest(
        feature_updates=[
            update_features.FeatureUpdateKey(
                feature=name, max_version_level=level, allow_downgrade=allow
            )
            for name, level, allow in updates
        ]
    )
    twins.ask(request, 0)


# --- quotas ------------------------------------------------------------------------------------


def component(kind, match_type, match=None):
    return describe_client_quotas.ComponentData(
        entity_type=kind, match_type=match_type, match=match
    )


def describe_quotas(twins, *components, strict=False):
    request = describe_client_quotas.DescribeClientQuotasRequest(
        components=list(components), strict=strict
    )
    return twins.ask(request, 0, but=in_order)


def in_order(answer):
    """Java's maps give the order of entities and of quotas."""
    for entry in answer["entries"] or ():
        entry["values"].sort(key=lambda value: value["key"])
    return parts_in_order(answer)


def parts_in_order(answer):
    for entry in answer["entries"] or ():
        entry["entity"].sort(key=lambda part: part["entity_type"])
    if answer["entries"]:
        answer["entries"].sort(key=repr)
    return answer


def alter_quotas(twins, *entries, validate_only=False):
    """Entries as (entity, {key: value or None})."""
    request = alter_client_quotas.AlterClientQuotasRequest(
        entries=[
            alter_client_quotas.EntryData(
                entity=[
                    alter_client_quotas.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity
                ],
                ops=[
                    alter_client_quotas.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in ops.items()
                ],
            )
            for entity, ops in entries
        ],
        validate_only=validate_only,
    )
    return twins.ask(request, 0, but=parts_in_order)


def codes(answer):
    return [entry["error_code"] for entry in answer["entries"]]


def test_quotas_are_stored_and_described(twins, user):
    both = [("user", user), ("client-id", "app")]
    rates = {"producer_byte_rate": 1e9, "request_percentage": 33.5}
    entities = [
        [("user", user)], both, [("client-id", f"{user}/x")], [("user", user), ("client-id", None)],
        [("user", None)], [("client-id", None)], [("user", None), ("client-id", None)],
    ]  # fmt: skip
    try:
        assert codes(alter_quotas(twins, *((entity, rates) for entity in entities))) == [0] * 7
        everything = describe_quotas(twins)
        assert len(everything["entries"]) == len(entities)
        for strict in (False, True):
            for kinds in (["user"], ["client-id"], ["user", "client-id"]):
                for match_type, name in ((0, user), (0, "app"), (1, None), (2, None)):
                    parts = [component(kind, match_type, name) for kind in kinds]
                    describe_quotas(twins, *parts, strict=strict)
        changed = {"producer_byte_rate": None, "controller_mutation_rate": 0.5}
        alter_quotas(twins, (both, changed), validate_only=True)
        assert describe_quotas(twins) == everything
        alter_quotas(twins, (both, changed))
        found = describe_quotas(twins, component("client-id", 0, "app"))
        assert [value["key"] for value in found["entries"][0]["values"]] == [
            "controller_mutation_rate", "request_percentage",
        ]  # fmt: skip
    finally:
        keys = ("producer_byte_rate", "request_percentage", "controller_mutation_rate")
        gone = dict.fromkeys(keys)
        alter_quotas(twins, *((entity, gone) for entity in entities))
    assert describe_quotas(twins)["entries"] == []


@pytest.mark.parametrize(
    ("entity", "ops", "code"),
    [
        ([("user", "u")], {"producer_byte_rate": 1000.5}, 42),
        ([("user", "u")], {"producer_byte_rate": 1000.0000001}, 0),
        ([("user", "u")], {"no_such_quota": 1.0}, 42),
        ([("user", "u")], {"no_such_quota": None}, 0),
        ([("client-id", "c")], {"SCRAM-SHA-256": 1.0}, 42),
        ([], {"producer_byte_rate": 1.0}, 42),
        ([("", "u")], {"producer_byte_rate": 1.0}, 42),
        ([("ip", "127.0.0.1")], {"connection_creation_rate": 1.0}, 42),
        ([("user", "u"), ("ip", "127.0.0.1")], {"producer_byte_rate": 1.0}, 42),
    ],
)
def test_quotas_that_are_not_valid(twins, entity, ops, code):
    assert codes(alter_quotas(twins, (entity, ops), validate_only=True)) == [code]


@pytest.mark.parametrize(
    "components",
    [
        [("ip", 0, "127.0.0.1")],
        [("", 0, "x")],
        [("user", 0, "a"), ("user", 2, None)],
        [("client-id", 1, None), ("client-id", 2, None)],
    ],
)
def test_filters_that_are_not_valid(twins, components):
    answer = describe_quotas(twins, *(component(*each) for each in components))
    assert answer["error_code"] in (35, 42)
    assert answer["entries"] is None


# --- SCRAM credentials -------------------------------------------------------------------------


def upsertion(name, mechanism=1, iterations=4096, password=b"p" * 32):
    return alter_user_scram_credentials.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=password
    )


def deletion(name, mechanism=1):
    return alter_user_scram_credentials.ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter_scram(twins, upsertions=(), deletions=()):
    request = alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        upsertions=list(upsertions), deletions=list(deletions)
    )
    answer = twins.ask(
        request, 0, but=lambda answer: answer["results"].sort(key=lambda r: r["user"]) or answer
    )
    return [result["error_code"] for result in answer["results"]]


def describe_scram(twins, *names):
    request = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
        users=[describe_user_scram_credentials.UserName(name=name) for name in names] or None
    )
    return twins.ask(request, 0)["results"]


def test_scram_credentials_are_stored_and_described(twins, user):
    assert describe_scram(twins) == []
    assert alter_scram(twins, [upsertion(user), upsertion(user, 2, 16384), upsertion("b")]) == [
        0, 0,
    ]  # fmt: skip
    assert len(describe_scram(twins)) == 2
    describe_scram(twins, "b", user)
    describe_scram(twins, user, "nobody", "b", "b", "")
    # A quota of the same user stays.
    alter_quotas(twins, ([("user", user)], {"producer_byte_rate": 5.0}))
    assert alter_scram(twins, [upsertion(user, 1, 5000)], [deletion(user, 2)]) == [0]
    (found,) = describe_scram(twins, user)
    assert [info["iterations"] for info in found["credential_infos"]] == [5000]
    assert alter_scram(twins, [], [deletion(user), deletion("b")]) == [0, 0]
    assert describe_scram(twins) == []
    assert len(describe_quotas(twins, component("user", 0, user))["entries"]) == 1
    alter_quotas(twins, ([("user", user)], {"producer_byte_rate": None}))


@pytest.mark.parametrize(
    ("upsertions", "deletions", "code"),
    [
        ([("u", 1, 4095)], [], 93),
        ([("u", 1, 16385)], [], 93),
        ([("", 1, 4096)], [], 93),
        ([("u", 0, 4096)], [], 33),
        ([("u", 3, 4096)], [], 33),
        ([], [("u", 1)], 91),
        ([], [("", 1)], 93),
        ([], [("u", 9)], 33),
        ([("u", 1, 4096)], [("u", 1)], 92),
        ([("u", 1, 4096), ("u", 1, 8192)], [], 92),
        ([("u", 1, 4096)], [("u", 2)], 91),
    ],
)
def test_scram_credentials_that_are_not_valid(twins, upsertions, deletions, code):
    changes = [upsertion(*each) for each in upsertions], [deletion(*each) for each in deletions]
    assert alter_scram(twins, *changes) == [code]
    assert describe_scram(twins) == []


def test_nothing_to_change(twins):
    assert alter_scram(twins) == []
    assert alter_quotas(twins)["entries"] == []


def test_internal_topics_are_in_no_transaction(twins, new_topic):
    topic = new_topic()
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        transactional_id="t", producer_id=1, producer_epoch=0,
        topics=[
            add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=[0])
            for name in ("__consumer_offsets", topic)
        ],
    )  # fmt: skip
    answer = twins.ask(request, 1, but=lambda a: a["results"].sort(key=lambda r: r["name"]) or a)
    assert [r["results"][0]["error_code"] for r in answer["results"]] == [29, 55]
