"""Known ways around authentication and ACLs, each planted in the real code; see `resurrection`."""

from kctl.broker import authorization
from kctl.broker.announced_changes import AnnouncedChanges
from kctl.broker.handlers import plain_commits, plain_produce
from kctl.broker.network import sasl_exchange
from kctl.broker.network.authentication import Authentication, AuthenticationState
from kctl.broker.security.acl_cache import AclCache
from kctl.broker.security.authorizer import AclAuthorizer
from kctl.protocol.acl import PermissionType
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.sasl.plain import plain_user
from tests.sim.resurrection import SEEDS_MAX, planted


@planted("fast path of Produce", 16, is_secured=True)
def plain_produce_asks_no_authorizer(patch):
    """The fast path appends what its client may not write."""
    patch(plain_produce, "_may_append", lambda *_: True)


@planted("fast path of OffsetCommit", SEEDS_MAX, is_secured=True)
def plain_commits_ask_no_authorizer(patch):
    """The fast path commits for groups and topics that its client may not read."""
    patch(plain_commits, "_may_commit", lambda *_: True)


@planted("guard of Produce", 1, is_secured=True)
def produce_has_no_guard(patch):
    """Whatever the fast path leaves is appended."""
    guards = {**authorization.GUARDS, ApiKey.PRODUCE: authorization.allow_all}
    patch(authorization, "GUARDS", guards)


@planted("remembered verdicts", 1, is_secured=True)
def verdicts_outlive_their_entries(patch):
    """A verdict is remembered after the entries have changed."""

    def replace(self, pattern, entries):
        self.index.replace(pattern, entries)

    patch(AclAuthorizer, "replace", replace)


@planted("CVE-2024-27309", 0, is_secured=True)
def denials_are_dropped(patch):
    """Entries that deny are lost when they are loaded."""
    original = AclAuthorizer.replace

    def replace(self, pattern, entries):
        original(self, pattern, [it for it in entries if it.permission is PermissionType.ALLOW])

    patch(AclAuthorizer, "replace", replace)


@planted("changes acknowledged too early", 6, is_secured=True)
def changes_are_acknowledged_before_they_are_in_force(patch):
    """The broker that stored a change waits for its announcement like any other."""

    async def change(self, pattern, changed):
        await self._store.update_acls(pattern, changed)

    patch(AclCache, "change", change)


@planted("watches end with their session", 2, is_secured=True)
def entries_are_not_read_after_a_reconnection(patch):
    """What changed while the store could not be reached stays unknown."""
    patch(AnnouncedChanges, "_session_changed", lambda *_: None)


@planted("requests before authentication", 0, is_secured=True)
def requests_are_served_before_authentication(patch):
    """A connection that asked for the versions is served without SASL."""
    original = Authentication.takes

    def takes(self, frame, now_ms):
        if self.state is AuthenticationState.VERSIONED and frame[:2] == b"\0\3":
            return False
        return original(self, frame, now_ms)

    patch(Authentication, "takes", takes)


@planted("any password", 3, is_secured=True)
def any_password_of_plain_is_right(patch):
    """PLAIN compares the user only."""

    def accept(token, passwords):
        _, user, _ = token.split(b"\0")
        return plain_user(b"\0".join((b"", user, passwords[user.decode()].encode())), passwords)

    patch(sasl_exchange, "plain_user", accept)
