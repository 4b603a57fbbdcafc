"""The parts of a broker that exist only where its configs ask for security.

A broker without an authorizer, SASL listeners and delegation tokens imports none of their modules:
this module alone decides which are loaded: at the start, or when a listener with SASL is added, and
never because of a client's request.

Fails closed: a broker with an authorizer has its guard from the same call that opens its ACLs.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kctl.configs.broker_config import BrokerConfig
from kctl.runtime.runtime import Runtime
from kctl.store.cluster_store import ClusterStore

if TYPE_CHECKING:
    from kctl.broker.config.dynamic_configs import DynamicConfigs
    from kctl.broker.credentials import Credentials
    from kctl.broker.delegation_tokens import DelegationTokens
    from kctl.broker.request import Request
    from kctl.broker.security.acl_cache import AclCache
    from kctl.broker.services import Services


class AccessControl(NamedTuple):
    """The ACLs, and the functions that check each request (`kctl.broker.authorization`)."""

    acl_cache: "AclCache"
    authorized: "Callable[[Services, Request], Request | None]"
    # Asked first about a large request, of so many bytes, whose body is not decoded yet.
    may_be_decoded: "Callable[[Services, Request, int], bool]"


async def access_control(
    runtime: Runtime, cluster_store: ClusterStore, config: BrokerConfig
) -> AccessControl | None:
    """Return the started access control; None without `authorizer.class.name`. StoreError."""
    if config.authorizer is None:
        return None
    from kctl.broker.authorization import authorized, may_be_decoded
    from kctl.broker.security.acl_cache import AclCache

    acl_cache = await AclCache.open(runtime, cluster_store, config.authorizer)
    return AccessControl(acl_cache, authorized, may_be_decoded)


def delegation_tokens(
    runtime: Runtime, config: BrokerConfig, cluster_store: ClusterStore
) -> "DelegationTokens | None":
    """Return the delegation tokens; None without `delegation.token.master.key`."""
    if not config.delegation_token_master_key:
        return None
    from kctl.broker.delegation_tokens import DelegationTokens

    return DelegationTokens(runtime, config, cluster_store)


def credentials(
    runtime: Runtime,
    config: BrokerConfig,
    dynamic_configs: "DynamicConfigs",
    tokens: "DelegationTokens | None",
) -> "Credentials | None":
    """Return what clients authenticate with, not started; None without listeners with SASL and
    without delegation tokens."""
    if tokens is None and not config.sasl_listeners:
        return None
    from kctl.broker.credentials import Credentials

    return Credentials(runtime, dynamic_configs, tokens)
