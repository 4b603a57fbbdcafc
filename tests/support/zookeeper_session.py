"""zookeeper_session: a client of ZooKeeper other than kctl's; its ephemeral znodes end with it."""

from collections.abc import Iterator
from contextlib import contextmanager

from kazoo.client import KazooClient


@contextmanager
def zookeeper_session(address: str) -> Iterator[KazooClient]:
    """Connect to the store at `address`."""
    client = KazooClient(address)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()
