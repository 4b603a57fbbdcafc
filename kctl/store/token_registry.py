"""TokenRegistry: delegation tokens without their secrets, as znodes.

A token is written first and then announced by a sequential znode with its id, which every broker
watches. A znode that is gone is a token that was deleted.

Kafka 2.7: kafka.zk.KafkaZkClient (delegation_token); KIP-48.
"""

from collections.abc import Sequence

from kctl.store import security_znodes
from kctl.store.interface import Set
from kctl.store.security_znodes import TokenInformation
from kctl.store.znode_client import ZnodeClient
from kctl.work import finished


class TokenRegistry(ZnodeClient):
    """The delegation tokens of a cluster, and the announcements of their changes."""

    async def create_token_paths(self) -> None:
        """Create the directories of tokens and announcements unless they exist."""
        await self.make_path(security_znodes.DELEGATION_TOKENS)
        await self.make_path(security_znodes.TOKEN_CHANGES)

    async def get_token_ids(self) -> list[str]:
        """Return the ids of all tokens, sorted."""
        return await self.children(security_znodes.DELEGATION_TOKENS)

    async def get_token(self, token_id: str) -> TokenInformation | None:
        """Return a token, None if it does not exist; raise CorruptDataError."""
        found = await self.get(security_znodes.delegation_token_path(token_id))
        if found is None:
            return None
        decoding = security_znodes.decoding_delegation_token(token_id, found[0])
        return await finished(decoding, self.store.turn)

    async def set_token(self, token: TokenInformation) -> None:
        """Create or replace a token and announce it."""
        path = security_znodes.delegation_token_path(token.token_id)
        await self.set_or_create(path, await self._encoded(token))
        await self._announce_token(token.token_id)

    async def update_token(self, token: TokenInformation) -> None:
        """Replace a token and announce it; NoNodeError if it was deleted."""
        path = security_znodes.delegation_token_path(token.token_id)
        await self.write(Set(path, await self._encoded(token)))
        await self._announce_token(token.token_id)

    async def delete_token(self, token_id: str) -> None:
        """Delete a token, if it exists, and announce that."""
        await self.delete_if_exists(security_znodes.delegation_token_path(token_id))
        await self._announce_token(token_id)

    async def get_token_changes(self, names: Sequence[str]) -> list[str]:
        """Return the ids of the tokens that these announcements name, each once."""
        found = await self.get_all([f"{security_znodes.TOKEN_CHANGES}/{name}" for name in names])
        return list(dict.fromkeys(answer[0].decode() for answer in found if answer))

    async def _encoded(self, token: TokenInformation) -> bytes:
        return await finished(security_znodes.encoding_delegation_token(token), self.store.turn)

    async def _announce_token(self, token_id: str) -> None:
        prefix = f"{security_znodes.TOKEN_CHANGES}/{security_znodes.TOKEN_CHANGE_PREFIX}"
        await self.create_sequential(prefix, token_id.encode())
