"""Which brokers are registered in ZooKeeper: of Kafka 0.7, or of 0.8 and later, and where.

`creator:host:port` is what 0.7 registers, JSON is what later releases register.
"""

from kctl.errors import UnreachableError, UsageError
from kctl.model import SecurityProtocol
from kctl.store.broker07_znodes import broker_ids, is_broker07
from kctl.store.znode_client import ZnodeClient
from kctl.store.znodes import BROKER_IDS, broker_path, decode_broker


async def registered_servers(
    client: ZnodeClient, protocol: SecurityProtocol, zookeeper: str
) -> list[tuple[str, int]] | None:
    """Return host and port of the listeners for `protocol`; None if the brokers are of Kafka 0.7.

    UnreachableError if there is no such listener, UsageError if brokers of both ages are
    registered. `zookeeper` is the address that these name.
    """
    is_07 = False
    servers: list[tuple[str, int]] = []
    ids = broker_ids(await client.children(BROKER_IDS))
    nodes = await client.get_all([broker_path(it) for it in ids])
    for broker_id, node in zip(ids, nodes, strict=True):
        if node is None:
            continue
        if is_broker07(node[0]):
            is_07 = True
            continue
        endpoints = decode_broker(broker_id, node[0]).endpoints
        servers += [(it.host, it.port) for it in endpoints if it.security_protocol is protocol]
    if is_07 and servers:
        raise UsageError(f"brokers of 0.7 and of later releases are at {zookeeper}")
    if not is_07 and not servers:
        raise UnreachableError(f"no broker is registered in ZooKeeper at {zookeeper} ({protocol})")
    return None if is_07 else servers
