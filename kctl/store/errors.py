"""Errors of metadata store calls: ZooKeeper's error codes as exceptions.

Each class is one decision of its catcher: create the parent, use the existing node, read again,
wait for the connection, start a new session, resign.
"""

from kctl.errors import KctlError, StorageError


class StoreError(KctlError):
    """The metadata store rejected a call; `path` is the znode's, or empty."""

    def __init__(self, path: str = "", message: str | None = None) -> None:
        super().__init__(message or (f"{path}: {self.text}" if path else self.text))
        self.path = path

    # What the error says about the path.
    text = "rejected by the metadata store"


class NoNodeError(StoreError):
    """There is no such znode (or no parent to create it under)."""

    text = "no such znode"


class NodeExistsError(StoreError):
    """The znode is there already."""

    text = "the znode exists already"


class BadVersionError(StoreError):
    """The znode's version is not the expected one: it was written in between."""

    text = "the znode has another version"


class NotEmptyError(StoreError):
    """A znode with children cannot be deleted."""

    text = "the znode has children"


class NoChildrenForEphemeralsError(StoreError):
    """An ephemeral znode cannot have children."""

    text = "an ephemeral znode cannot have children"


class BadArgumentsError(StoreError):
    """An invalid path, too much data, or a deletion of the root: nothing was tried."""

    text = "not a path or not data that a znode can have"


class SessionExpiredError(StoreError):
    """The session has ended: ephemerals and watches are gone, a new session is needed."""

    text = "the session with the metadata store has expired"


class ConnectionLossError(StoreError):
    """The response was lost with the connection; the operation may or may not have happened."""

    text = "connection to the metadata store lost"


class StoppingError(StoreError):
    """This broker stops, and its calls no longer wait for a lost connection."""

    text = "the broker stops without a connection to the metadata store"


class LostDataError(StoreError):
    """The store has no cluster: it has lost its data, and what it would hand out is in use."""

    text = "the metadata store has lost its data"


class AuthFailedError(StoreError):
    """The store rejects this client (bad credentials or a znode's ACL); a retry cannot succeed."""

    text = "not authorised by the metadata store"


class ControllerMovedError(StoreError):
    """`/controller_epoch` has changed: another broker is controller, resign."""

    text = "the controller has moved to another broker"


class NotWrittenError(StoreError, StorageError):
    """The store cannot write its own disk: nothing changed, and nothing can, until
    there is room."""

    text = "the metadata store cannot write"


class MultiError(StoreError):
    """A multi was rejected as a whole because its operation `index` failed with `error`."""

    def __init__(self, index: int, error: StoreError) -> None:
        super().__init__(error.path, f"operation {index} of a multi failed: {error}")
        self.index = index
        self.error = error
