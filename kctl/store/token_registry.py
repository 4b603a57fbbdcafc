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


class TokenRegistry(ZnodeClient):
    """The delegation tokens of a cluster, and the announcements of their changes."""

    async def create_token_paths(self) -> None:
        """Create the directories of tokens and announcements unless they exist."""
        await self.make_path(security_znodes.DELEGATION_TOKENS)
        await self.make_path(security_znodes.TOKEN_CHANGES)

    async def get_token_ids(self) -> list[str]:
        """Return the ids of all tokens, sorted."""
        return await self.children(security_znodes.DELEGATION_TOKENS)

    async def get_tokens(self, token_ids: Sequence[str]) -> dict[str, TokenInformation | None]:
        """Return these tokens, None for those that do not exist; raise CorruptDataError."""
        paths = [security_znodes.delegation_token_path(token_id) for token_id in token_ids]
        found = await self.get_all(paths)
        return {
            token_id: security_znodes.decode_delegation_token(token_id, it[0]) if it else None
            for token_id, it in zip(token_ids, found, strict=True)
        }

    async def set_token(self, token: TokenInformation) -> None:
        """Create or replace a token and announce it."""
        path = security_znodes.delegation_token_path(token.token_id)
        await self.set_or_create(path, security_znodes.encode_delegation_token(token))
        await self._announce_token(token.token_id)

    async def update_token(self, token: TokenInformation) -> None:
        """Replace a token and announce it; NoNodeError if it was deleted."""
        path = security_znodes.delegation_token_path(token.token_id)
        await self.write(Set(path, security_znodes.encode_delegation_token(token)))
        await self._announce_token(token.token_id)

    async def delete_token(self, token_id: str) -> None:
        """Delete a token, if it exists, and announce that."""
        await self.delete_if_exists(security_znodes.delegation_token_path(token_id))
        await self._announce_token(token_id)

    async def get_token_changes(self, names: Sequence[str]) -> list[str]:
        """Return the ids of the tokens that these announcements name, each once."""
        found = await self.get_all([f"{security_znodes.TOKEN_CHANGES}/{name}" for name in names])
        return list(dict.fromkeys(answer[0].decode() for answer in found if answer))

    async def _announce_token(self, token_id: str) -> None:
        prefix = f"{security_znodes.TOKEN_CHANGES}/{security_znodes.TOKEN_CHANGE_PREFIX}"
        await self.create_sequential(prefix, token_id.encode())
