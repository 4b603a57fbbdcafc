"""Clients of aiokafka that are closed in any case."""

from contextlib import asynccontextmanager


@asynccontextmanager
async def started(client):
    """Start a producer or a consumer, and stop it after the block or if it does not start.

    `async with client` leaves one that does not start open, and it warns of that when the garbage
    collector finds it, in the middle of another test."""
    try:
        await client.start()
        yield client
    finally:
        await client.stop()
