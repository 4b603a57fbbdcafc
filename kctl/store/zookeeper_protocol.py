"""ZooKeeper's client protocol: its frames, numbers and requests, as a server sees them. Pure.

A connection is a sequence of frames (length, payload). The client's first frame requests a session,
a new one or an earlier one; from then on each of its frames is `xid, operation, request` and is
answered, in order, by `xid, zxid, error, response`. Between responses come events (xid -1) of
watches that fired, each before any response that could show its change. Some xids do not number
requests: -2 is a ping, -4 credentials, -8 watches that are set again.

A watch belongs to the connection it was set on. When that is lost the session continues until its
timeout, and on its next connection the client names its watches and the last zxid it saw: later
changes become events at once, the other watches stay pending.

The server does what ZooKeeper 3.5 does with `world:anyone` everywhere, and the reads of 3.6 in one
request. ACLs that would protect something, TTLs, containers, quorum changes, SASL and persistent
watches are rejected with the error of a ZooKeeper without them: no request is accepted that would
not be honored.

ZooKeeper: org.apache.zookeeper.ZooDefs.OpCode, KeeperException.Code, MultiOperationRecord.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

from kctl.errors import CorruptDataError
from kctl.store import errors
from kctl.store.errors import MultiError, StoreError
from kctl.store.jute import (
    ACL,
    FALSE,
    TRUE,
    WORLD_ANYONE,
    JuteReader,
    encode_buffer,
    encode_int,
    encode_long,
    encode_stat,
    encode_string,
)
from kctl.store.znode import Check, Create, Delete, Operation, Set, Stat, WatchedEvent

PASSWORD_BYTES = 16
# Of one multi: Kafka puts a few operations into each.
MULTI_OPERATIONS_MAX = 10_000

NOTIFICATION_XID = -1
SYNC_CONNECTED = 3


class OpCode(IntEnum):
    """The kind of a request."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    CLOSE_SESSION = -11
    # The end of a multi, and a failed operation in its response.
    ERROR = -1


class ErrorNumber(IntEnum):
    """The error code of a failed request."""

    OK = 0
    SYSTEM_ERROR = -1
    # The operation itself did not fail, but one before it in the same multi.
    RUNTIME_INCONSISTENCY = -2
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    NO_WATCHER = -121


class NoWatcherError(StoreError):
    """The session has no such watch."""

    text = "no such watch"


_NUMBERS: dict[type[StoreError], ErrorNumber] = {
    errors.NoNodeError: ErrorNumber.NO_NODE,
    errors.NodeExistsError: ErrorNumber.NODE_EXISTS,
    errors.BadVersionError: ErrorNumber.BAD_VERSION,
    errors.NotEmptyError: ErrorNumber.NOT_EMPTY,
    errors.NoChildrenForEphemeralsError: ErrorNumber.NO_CHILDREN_FOR_EPHEMERALS,
    errors.BadArgumentsError: ErrorNumber.BAD_ARGUMENTS,
    errors.SessionExpiredError: ErrorNumber.SESSION_EXPIRED,
    errors.AuthFailedError: ErrorNumber.AUTH_FAILED,
    NoWatcherError: ErrorNumber.NO_WATCHER,
}


class RefusedError(StoreError):
    """A request that this store does not support; `number` is the error code for the client."""

    def __init__(self, number: ErrorNumber, path: str, message: str) -> None:
        super().__init__(path, message)
        self.number = number


def error_number(error: StoreError) -> ErrorNumber:
    """Return the error code that the client gets for `error`."""
    if isinstance(error, RefusedError):
        return error.number
    return _NUMBERS.get(type(error), ErrorNumber.SYSTEM_ERROR)


# --- the first frame


class ConnectRequest(NamedTuple):
    """A client's request for a session; `session_id` 0 requests a new one."""

    last_zxid_seen: int
    timeout_ms: int
    session_id: int
    password: bytes
    # Clients since 3.4 say whether they accept a read-only server; the response says what they got.
    knows_read_only: bool


def decode_connect(frame: bytes | memoryview) -> ConnectRequest:
    """Decode the first frame; raise CorruptDataError if it is invalid."""
    reader = JuteReader(frame)
    if reader.int32() != 0:
        raise CorruptDataError("a client of an unknown version of ZooKeeper's protocol")
    request = (reader.int64(), reader.int32(), reader.int64(), reader.buffer())
    return ConnectRequest(*request, knows_read_only=not reader.is_at_end)


def encode_connected(
    session_id: int, password: bytes, timeout_ms: int, *, knows_read_only: bool
) -> bytes:
    """Return the response; session 0 with timeout 0: the requested session has ended."""
    body = encode_int(0) + encode_int(timeout_ms) + encode_long(session_id)
    body += encode_buffer(password)
    if knows_read_only:
        # This server is never read-only.
        body += FALSE
    return encode_buffer(body)


# --- answers and events


def encode_reply(
    xid: int, zxid: int, body: bytes = b"", error: ErrorNumber = ErrorNumber.OK
) -> bytes:
    """Return a complete frame."""
    return encode_buffer(encode_int(xid) + encode_long(zxid) + encode_int(error) + body)


def encode_event(event: WatchedEvent) -> bytes:
    """Return a complete frame."""
    body = encode_int(event.type.value) + encode_int(SYNC_CONNECTED) + encode_string(event.path)
    return encode_reply(NOTIFICATION_XID, -1, body)


# --- requests


class Read(NamedTuple):
    """GET_DATA, EXISTS, GET_CHILDREN, GET_CHILDREN2."""

    path: str
    watch: bool


class SetAcl(NamedTuple):
    """SET_ACL, after its ACL was found to be the only supported one."""

    path: str
    version: int


class WatchesAgain(NamedTuple):
    """SET_WATCHES: the client's watches, and the last zxid it saw."""

    last_zxid_seen: int
    data: list[str]
    exists: list[str]
    children: list[str]


class Credentials(NamedTuple):
    """AUTH."""

    scheme: str


class WatcherKind(NamedTuple):
    """CHECK_WATCHES, REMOVE_WATCHES; kind 1: of children, 2: of data, 3: any."""

    path: str
    kind: int


class Multi(NamedTuple):
    """MULTI or MULTI_READ: the operation of each part, and the part."""

    opcodes: list[OpCode]
    parts: list["Operation | Read"]


Request = Operation | Read | SetAcl | WatchesAgain | Credentials | WatcherKind | Multi | str | None


# Flags of a CREATE.
_EPHEMERAL = 1
_SEQUENCE = 2


def _check_acl(acls: list[ACL], path: str) -> None:
    if acls != [WORLD_ANYONE]:
        raise RefusedError(
            ErrorNumber.INVALID_ACL, path, f"{path}: the only supported ACL is world:anyone:cdrwa"
        )


def _read_create(reader: JuteReader) -> Create:
    path, data = reader.string(), reader.buffer()
    acls, flags = reader.acls(), reader.int32()
    _check_acl(acls, path)
    if not 0 <= flags <= _SEQUENCE | _EPHEMERAL:
        raise RefusedError(
            ErrorNumber.UNIMPLEMENTED, path, f"{path}: no containers and TTLs (flags {flags})"
        )
    return Create(path, data, bool(flags & _EPHEMERAL), bool(flags & _SEQUENCE))


def _read_set_acl(reader: JuteReader) -> SetAcl:
    path, acls, version = reader.string(), reader.acls(), reader.int32()
    _check_acl(acls, path)
    return SetAcl(path, version)


def _read_watches(reader: JuteReader) -> WatchesAgain:
    return WatchesAgain(reader.int64(), reader.strings(), reader.strings(), reader.strings())


def _read_watches2(reader: JuteReader) -> WatchesAgain:
    watches = _read_watches(reader)
    if reader.strings() or reader.strings():
        raise RefusedError(ErrorNumber.UNIMPLEMENTED, "", "no persistent watches")
    return watches


def _read_credentials(reader: JuteReader) -> Credentials:
    reader.int32()
    return Credentials(reader.string())


def _read_part(reader: JuteReader) -> tuple[OpCode, bool]:
    number, is_end = reader.int32(), reader.boolean()
    reader.int32()
    if is_end:
        return OpCode.ERROR, True
    try:
        return OpCode(number), False
    except ValueError:
        raise _unknown(number) from None


def _read_parts(reader: JuteReader, allowed: Sequence[OpCode]) -> Multi:
    multi = Multi([], [])
    refused: MultiError | None = None
    while True:
        opcode, is_end = _read_part(reader)
        if is_end:
            break
        index = len(multi.opcodes)
        if opcode not in allowed or index >= MULTI_OPERATIONS_MAX:
            raise _unknown(opcode)
        multi.opcodes.append(opcode)
        try:
            part = _READERS[opcode](reader)
        except RefusedError as error:
            refused = refused or MultiError(index, error)
            part = Check("/", 0)
        multi.parts.append(part)  # type: ignore[arg-type]  # of the allowed kinds
    if refused is not None:
        raise RefusedMultiError(multi.opcodes, refused)
    return multi


class RefusedMultiError(StoreError):
    """A multi with an unsupported part; its response covers all parts."""

    def __init__(self, opcodes: list[OpCode], cause: MultiError) -> None:
        super().__init__(cause.path, str(cause))
        self.opcodes = opcodes
        self.cause = cause


_WRITES = (OpCode.CREATE, OpCode.CREATE2, OpCode.DELETE, OpCode.SET_DATA, OpCode.CHECK)
_READS = (OpCode.GET_DATA, OpCode.GET_CHILDREN)


def _read_read(reader: JuteReader) -> Read:
    return Read(reader.string(), reader.boolean())


_READERS: dict[OpCode, Callable[[JuteReader], Request]] = {
    OpCode.CREATE: _read_create,
    OpCode.CREATE2: _read_create,
    OpCode.DELETE: lambda reader: Delete(reader.string(), reader.int32()),
    OpCode.SET_DATA: lambda reader: Set(reader.string(), reader.buffer(), reader.int32()),
    OpCode.CHECK: lambda reader: Check(reader.string(), reader.int32()),
    OpCode.EXISTS: _read_read,
    OpCode.GET_DATA: _read_read,
    OpCode.GET_CHILDREN: _read_read,
    OpCode.GET_CHILDREN2: _read_read,
    OpCode.GET_ACL: JuteReader.string,
    OpCode.SET_ACL: _read_set_acl,
    OpCode.SYNC: JuteReader.string,
    OpCode.GET_EPHEMERALS: JuteReader.string,
    OpCode.GET_ALL_CHILDREN_NUMBER: JuteReader.string,
    OpCode.MULTI: lambda reader: _read_parts(reader, _WRITES),
    OpCode.MULTI_READ: lambda reader: _read_parts(reader, _READS),
    OpCode.SET_WATCHES: _read_watches,
    OpCode.SET_WATCHES2: _read_watches2,
    OpCode.CHECK_WATCHES: lambda reader: WatcherKind(reader.string(), reader.int32()),
    OpCode.REMOVE_WATCHES: lambda reader: WatcherKind(reader.string(), reader.int32()),
    OpCode.AUTH: _read_credentials,
    OpCode.PING: lambda _reader: None,
    OpCode.CLOSE_SESSION: lambda _reader: None,
}


def decode_header(reader: JuteReader) -> tuple[int, int]:
    """Return the xid of a request, and the number of its operation."""
    return reader.int32(), reader.int32()


def decode_request(reader: JuteReader, number: int) -> tuple[OpCode, Request]:
    """Decode the rest of a frame. RefusedError, RefusedMultiError; CorruptDataError ends the
    connection."""
    try:
        opcode = OpCode(number)
        read = _READERS[opcode]
    except (ValueError, KeyError):
        raise _unknown(number) from None
    return opcode, read(reader)


def _unknown(number: int) -> RefusedError:
    return RefusedError(ErrorNumber.UNIMPLEMENTED, "", f"operation {number} is not served")


# --- answers of a multi


def encode_parts(opcodes: Sequence[OpCode], bodies: Sequence[bytes]) -> bytes:
    """Return the response of a multi in which each part has succeeded or has its own error."""
    answered = []
    for opcode, body in zip(opcodes, bodies, strict=True):
        answered.append(_part_header(opcode, body if opcode is OpCode.ERROR else b""))
        answered.append(body)
    answered.append(encode_int(OpCode.ERROR) + TRUE + encode_int(-1))
    return b"".join(answered)


def encode_failed_parts(opcodes: Sequence[OpCode], error: MultiError) -> bytes:
    """Return the response of a multi that changed nothing because of one part."""
    numbers = [
        ErrorNumber.OK
        if index < error.index
        else error_number(error.error)
        if index == error.index
        else ErrorNumber.RUNTIME_INCONSISTENCY
        for index in range(len(opcodes))
    ]
    return encode_parts([OpCode.ERROR] * len(opcodes), [encode_int(each) for each in numbers])


def _part_header(opcode: OpCode, error: bytes) -> bytes:
    return encode_int(opcode) + FALSE + (error or encode_int(0))


def encode_result(opcode: OpCode, result: Stat | str | None, stat: Stat | None) -> bytes:
    """Encode the result of a write: of CREATE its path, of CREATE2 path and `stat`, of SET_DATA a
    Stat."""
    if isinstance(result, str):
        body = encode_string(result)
        return body + encode_stat(stat) if opcode is OpCode.CREATE2 and stat is not None else body
    return b"" if result is None else encode_stat(result)
