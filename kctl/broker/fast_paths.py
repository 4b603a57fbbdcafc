"""fast_paths: the APIs whose most frequent requests are answered without building message objects.

A fast path is offered each request before it is decoded, and so before its guard
(`kctl.broker.authorization`). It asks the authorizer itself, for every request, and leaves what is
not allowed to the guard.
"""

from kctl.broker.handlers.plain_commits import PlainCommits
from kctl.broker.handlers.plain_produce import PlainProduce
from kctl.broker.network.connection_host import FastPath
from kctl.broker.network.server_connection import API_KEY_BYTES
from kctl.broker.services import Services
from kctl.protocol.api_keys import ApiKey


def fast_paths(services: Services) -> dict[bytes, FastPath]:
    """Return the fast paths of a broker, by API key as two bytes."""
    authorizer = services.acl_cache.authorizer if services.acl_cache is not None else None
    produce_version, commit_version = (
        services.served[api][1] for api in (ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT)
    )
    produce = PlainProduce(services.replica_manager, produce_version, authorizer)
    commit = PlainCommits(services, commit_version, authorizer)
    return {
        int(ApiKey.PRODUCE).to_bytes(API_KEY_BYTES, "big"): produce.answer,
        int(ApiKey.OFFSET_COMMIT).to_bytes(API_KEY_BYTES, "big"): commit.answer,
    }
