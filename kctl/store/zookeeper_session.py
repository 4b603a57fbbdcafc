"""Conversation: one client's conversation with a ZnodeDatabase, frame by frame.

    GREETING --connect--> SERVING --close session--> ENDED
        any --invalid bytes, session ended, credentials rejected--> ENDED

A session outlives its connections: a client that sends its id and password in a new first frame
resumes it, which ends its previous conversation. The password is a function of the id and of a
secret stored beside the journal, so sessions can be resumed after a restart, and no client can
resume a session by guessing its id.

Responses and events leave in the order in which they arose. Those not durable yet wait, and
so do all after them: at most WAITING_RESPONSES_MAX responses, then the shell stops reading.

ZooKeeper: org.apache.zookeeper.server.FinalRequestProcessor, PrepRequestProcessor.
"""

import hmac
from collections.abc import Callable
from enum import Enum, auto
from hashlib import blake2b
from typing import Any, Protocol, cast

from kctl.errors import CorruptDataError, StorageError
from kctl.store.database import ZnodeDatabase
from kctl.store.errors import (
    BadVersionError,
    MultiError,
    SessionExpiredError,
    StoreError,
)
from kctl.store.jute import (
    WORLD_ANYONE,
    JuteReader,
    encode_acls,
    encode_data,
    encode_int,
    encode_stat,
    encode_string,
    encode_strings,
)
from kctl.store.watches import Firing
from kctl.store.znode import ANY_VERSION, EventType, Operation, Stat, WatchedEvent
from kctl.store.zookeeper_protocol import (
    PASSWORD_BYTES,
    ConnectRequest,
    Credentials,
    ErrorNumber,
    Multi,
    NoWatcherError,
    OpCode,
    Read,
    RefusedError,
    RefusedMultiError,
    SetAcl,
    WatcherKind,
    WatchesAgain,
    decode_connect,
    decode_header,
    decode_request,
    encode_connected,
    encode_event,
    encode_failed_parts,
    encode_parts,
    encode_reply,
    encode_result,
    error_number,
)

# The limits of a client's requested timeout (ZooKeeper: 2 and 20 ticks).
SESSION_TIMEOUT_MS_MIN = 1_000
SESSION_TIMEOUT_MS_MAX = 120_000
SESSIONS_MAX = 10_000
# Responses of one conversation that wait for a sync (ZooKeeper: globalOutstandingLimit).
WAITING_RESPONSES_MAX = 1_000

_NO_PASSWORD = bytes(PASSWORD_BYTES)
_NO_STAT = Stat(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
# The parts of a znode that a read's watch covers: its names, its data, or any.
_CHILDREN, _DATA, _ANY = 1, 2, 3


class Passwords:
    """The passwords that prove ownership of a session."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def of(self, session_id: int) -> bytes:
        """Return the session's password."""
        name = session_id.to_bytes(8, "big", signed=True)
        return blake2b(name, key=self._secret, digest_size=PASSWORD_BYTES).digest()

    def is_right(self, session_id: int, password: bytes) -> bool:
        """Return whether the password is the session's."""
        return hmac.compare_digest(self.of(session_id), password)


class Peer(Protocol):
    """The connection of a conversation."""

    def send(self, frame: bytes) -> None:
        """Send a frame, after those before it."""
        ...

    def close(self) -> None:
        """Send what is queued, then close."""
        ...

    def warn(self, message: str) -> None:
        """Log a warning about this peer."""
        ...

    def responses_sent(self) -> None:
        """Continue after `is_full`: there is room for responses again."""
        ...


class _State(Enum):
    GREETING = auto()
    SERVING = auto()
    ENDED = auto()


_MOVES = {
    _State.GREETING: (_State.SERVING, _State.ENDED),
    _State.SERVING: (_State.ENDED,),
    _State.ENDED: (),
}


class Conversation:
    """A client's conversation; it owns the session until another connection takes it over."""

    def __init__(self, database: ZnodeDatabase, passwords: Passwords, peer: Peer) -> None:
        self.session_id = 0
        self._database = database
        self._tree = database.tree
        self._passwords = passwords
        self._peer = peer
        self._state = _State.GREETING
        # Frames passed to the database that may not be sent yet.
        self._waiting_responses = 0

    @property
    def is_serving(self) -> bool:
        """Return whether there is a session."""
        return self._state is _State.SERVING

    @property
    def is_over(self) -> bool:
        """Return whether the conversation has ended."""
        return self._state is _State.ENDED

    @property
    def is_full(self) -> bool:
        """Return whether responses must leave before more requests are read."""
        return self._waiting_responses >= WAITING_RESPONSES_MAX

    def _move(self, state: _State) -> None:
        if state not in _MOVES[self._state]:
            raise RuntimeError(f"a conversation goes from {self._state} to {state}")
        self._state = state

    # --- in

    def receive(self, frame: bytes | memoryview) -> None:
        """Handle the client's next frame."""
        if self._state is _State.ENDED:
            return
        try:
            if self._state is _State.GREETING:
                self._greet(decode_connect(frame))
            elif self._database.touch(self.session_id):
                self._serve(JuteReader(frame))
            else:
                self.end()
        except CorruptDataError as error:
            self._end_because(str(error))
        except StorageError as error:
            self._end_because(str(error))

    def connection_lost(self) -> None:
        """Detach from the session, which waits for its client or its timeout; its watches are
        dropped."""
        if self._state is not _State.ENDED:
            self._state = _State.ENDED
            self._tree.watches.forget_session(self.session_id)
            self._database.detach_session(self.session_id, self)

    def end(self) -> None:
        """Send nothing new, and close when everything queued is sent."""
        if self._state is not _State.ENDED:
            self._move(_State.ENDED)
            self._peer.close()

    def _end_because(self, message: str) -> None:
        self._peer.warn(message)
        self.connection_lost()
        self._peer.close()

    # --- the session

    def _greet(self, request: ConnectRequest) -> None:
        tree = self._tree
        if request.last_zxid_seen > tree.last_zxid:
            # The client saw data that this store lost, or comes from another store.
            seen = f"{request.last_zxid_seen:#x}"
            raise CorruptDataError(
                f"it has seen zxid {seen}, but this store is at {tree.last_zxid:#x}"
            )
        try:
            timeout_ms = self._begin(request)
        except SessionExpiredError:
            answer = encode_connected(0, _NO_PASSWORD, 0, knows_read_only=request.knows_read_only)
            self._move(_State.ENDED)
            self._say(answer)
            self._close_after_responses()
            return
        self._move(_State.SERVING)
        password = self._passwords.of(self.session_id)
        self._say(
            encode_connected(
                self.session_id, password, timeout_ms, knows_read_only=request.knows_read_only
            )
        )

    def _begin(self, request: ConnectRequest) -> int:
        if request.session_id:
            if not self._passwords.is_right(request.session_id, request.password):
                raise SessionExpiredError
            timeout_ms = self._database.attach_session(request.session_id, self)
            self.session_id = request.session_id
            return timeout_ms
        if len(self._tree.sessions) >= SESSIONS_MAX:
            raise CorruptDataError(f"no more than {SESSIONS_MAX} sessions")
        timeout_ms = min(max(request.timeout_ms, SESSION_TIMEOUT_MS_MIN), SESSION_TIMEOUT_MS_MAX)
        self.session_id = self._database.open_session(self, timeout_ms)
        return timeout_ms

    def session_taken(self) -> None:
        """End the conversation: the client resumed the session on another connection."""
        self._tree.watches.forget_session(self.session_id)
        self.end()

    def session_expired(self) -> None:
        """End the conversation with its session."""
        self.end()

    def watch_fired(self, firing: Firing) -> None:
        """Send an event to the client."""
        self._say(encode_event(firing.event))

    # --- out

    def _say(self, frame: bytes) -> None:
        if not self._waiting_responses and self._database.is_all_durable:
            self._peer.send(frame)
        else:
            self._waiting_responses += 1
            self._database.when_durable(self._send, frame)

    def _send(self, frame: bytes) -> None:
        was_full = self.is_full
        self._waiting_responses -= 1
        if self._database.failure is not None:
            # No client may see state that a restart would lose.
            if self._state is not _State.ENDED:
                self._end_because(str(self._database.failure))
            return
        self._peer.send(frame)
        if was_full:
            self._peer.responses_sent()

    # --- requests

    def _serve(self, reader: JuteReader) -> None:
        xid, number = decode_header(reader)
        body, error = b"", ErrorNumber.OK
        opcode: OpCode | None = None
        try:
            opcode, request = decode_request(reader, number)
            body = _SERVED[opcode](self, opcode, request)
        except RefusedMultiError as refused:
            self._peer.warn(str(refused))
            body = encode_failed_parts(refused.opcodes, refused.cause)
        except StoreError as refused:
            if isinstance(refused, RefusedError):
                self._peer.warn(str(refused))
            error = error_number(refused)
        self._say(encode_reply(xid, self._tree.last_zxid, body, error))
        if opcode is OpCode.CLOSE_SESSION or error is ErrorNumber.AUTH_FAILED:
            self._finish(opcode)

    def _finish(self, opcode: OpCode | None) -> None:
        if opcode is OpCode.CLOSE_SESSION:
            self._move(_State.ENDED)
        else:
            self.connection_lost()
        self._close_after_responses()

    def _close_after_responses(self) -> None:
        """Close when the last response is sent, which may wait for a sync."""
        if self._waiting_responses:
            self._database.when_durable(self._peer.close)
        else:
            self._peer.close()

    def write(self, opcode: OpCode, operation: Operation) -> bytes:
        """Carry out CREATE, CREATE2, DELETE, SET_DATA, CHECK."""
        return self._result(opcode, self._database.commit(self.session_id, operation))

    def write_all(self, _opcode: OpCode, multi: Multi) -> bytes:
        """Carry out MULTI."""
        try:
            operations = cast(list[Operation], multi.parts)
            results = self._database.commit_multi(self.session_id, operations)
        except MultiError as error:
            return encode_failed_parts(multi.opcodes, error)
        pairs = zip(multi.opcodes, results, strict=True)
        return encode_parts(multi.opcodes, [self._result(*pair) for pair in pairs])

    def _result(self, opcode: OpCode, result: Stat | str | None) -> bytes:
        node = self._tree.nodes.get(result) if isinstance(result, str) else None
        return encode_result(opcode, result, node.stat() if node is not None else _NO_STAT)

    def read(self, opcode: OpCode, request: Read) -> bytes:
        """Carry out GET_DATA, EXISTS, GET_CHILDREN, GET_CHILDREN2; the watch is set if the read
        succeeds, that of EXISTS in any case."""
        path, watch = request
        watches = self._tree.watches
        if watch and opcode is OpCode.EXISTS:
            watches.watch_data(path, self.session_id, _fires_at_its_session)
        node = self._tree.get(path)
        if opcode is OpCode.EXISTS:
            return encode_stat(node.stat())
        if opcode is OpCode.GET_DATA:
            if watch:
                watches.watch_data(path, self.session_id, _fires_at_its_session)
            return encode_data(node.data) + encode_stat(node.stat())
        if watch:
            watches.watch_children(path, self.session_id, _fires_at_its_session)
        names = encode_strings(self._tree.children(path))
        return names + encode_stat(node.stat()) if opcode is OpCode.GET_CHILDREN2 else names

    def read_all(self, _opcode: OpCode, multi: Multi) -> bytes:
        """Carry out MULTI_READ: each part succeeds or fails independently."""
        opcodes, bodies = [], []
        for opcode, part in zip(multi.opcodes, multi.parts, strict=True):
            assert isinstance(part, Read)
            try:
                bodies.append(self.read(opcode, Read(part.path, watch=False)))
                opcodes.append(opcode)
            except StoreError as error:
                bodies.append(encode_int(error_number(error)))
                opcodes.append(OpCode.ERROR)
        return encode_parts(opcodes, bodies)

    def get_acl(self, _opcode: OpCode, path: str) -> bytes:
        """Carry out GET_ACL."""
        return encode_acls([WORLD_ANYONE]) + encode_stat(self._tree.get(path).stat())

    def set_acl(self, _opcode: OpCode, request: SetAcl) -> bytes:
        """Carry out SET_ACL, which can only set the ACL that every znode has."""
        stat = self._tree.get(request.path).stat()
        if request.version not in (ANY_VERSION, stat.aversion):
            raise BadVersionError(request.path)
        return encode_stat(stat)

    def sync(self, _opcode: OpCode, path: str) -> bytes:
        """Carry out SYNC: there is no other server to synchronize with."""
        return encode_string(path)

    def ephemerals(self, _opcode: OpCode, prefix: str) -> bytes:
        """Carry out GET_EPHEMERALS."""
        paths = self._tree.ephemerals(self.session_id)
        return encode_strings([path for path in paths if path.startswith(prefix)])

    def descendants(self, _opcode: OpCode, path: str) -> bytes:
        """Carry out GET_ALL_CHILDREN_NUMBER."""
        self._tree.get(path)
        prefix = path.rstrip("/") + "/"
        count = sum(each.startswith(prefix) and each != "/" for each in self._tree.nodes)
        return encode_int(count)

    def set_watches(self, _opcode: OpCode, request: WatchesAgain) -> bytes:
        """Carry out SET_WATCHES: changes since are reported at once, the other watches are set."""
        watches, session_id, seen = self._tree.watches, self.session_id, request.last_zxid_seen
        for path in request.data:
            missed = self._missed(path, seen, is_child_watch=False)
            if missed is not None:
                self._say(encode_event(WatchedEvent(missed, path)))
            else:
                watches.watch_data(path, session_id, _fires_at_its_session)
        for path in request.exists:
            if path in self._tree.nodes:
                self._say(encode_event(WatchedEvent(EventType.CREATED, path)))
            else:
                watches.watch_data(path, session_id, _fires_at_its_session)
        for path in request.children:
            missed = self._missed(path, seen, is_child_watch=True)
            if missed is not None:
                self._say(encode_event(WatchedEvent(missed, path)))
            else:
                watches.watch_children(path, session_id, _fires_at_its_session)
        return b""

    def _missed(self, path: str, seen: int, *, is_child_watch: bool) -> EventType | None:
        node = self._tree.nodes.get(path)
        if node is None:
            return EventType.DELETED
        if is_child_watch:
            return EventType.CHILDREN_CHANGED if node.pzxid > seen else None
        return EventType.DATA_CHANGED if node.mzxid > seen else None

    def watcher_kind(self, opcode: OpCode, request: WatcherKind) -> bytes:
        """Carry out CHECK_WATCHES, REMOVE_WATCHES."""
        path, kind = request
        watches = self._tree.watches
        data, children = kind in (_DATA, _ANY), kind in (_CHILDREN, _ANY)
        if not watches.is_watched(path, self.session_id, data=data, children=children):
            raise NoWatcherError(path)
        if opcode is OpCode.REMOVE_WATCHES:
            watches.remove(path, self.session_id, data=data, children=children)
        return b""

    def authenticate(self, _opcode: OpCode, credentials: Credentials) -> bytes:
        """Carry out AUTH: any digest is accepted, as in ZooKeeper; no ACL requires one."""
        if credentials.scheme != "digest":
            raise RefusedError(
                ErrorNumber.AUTH_FAILED, "", f"no authentication by {credentials.scheme}"
            )
        return b""

    def ping(self, _opcode: OpCode, _request: None) -> bytes:
        """Carry out PING, a sign of life."""
        return b""

    def close_session(self, _opcode: OpCode, _request: None) -> bytes:
        """Carry out CLOSE_SESSION, which deletes its ephemerals."""
        self._database.close_session(self.session_id)
        return b""


def _fires_at_its_session(_event: WatchedEvent) -> None:
    """Stand for a client's watch: the session's owner passes the event on."""


# Called with the result of its row in the decoders.
_Server = Callable[[Conversation, OpCode, Any], bytes]
_SERVED: dict[OpCode, _Server] = {
    OpCode.CREATE: Conversation.write,
    OpCode.CREATE2: Conversation.write,
    OpCode.DELETE: Conversation.write,
    OpCode.SET_DATA: Conversation.write,
    OpCode.CHECK: Conversation.write,
    OpCode.EXISTS: Conversation.read,
    OpCode.GET_DATA: Conversation.read,
    OpCode.GET_CHILDREN: Conversation.read,
    OpCode.GET_CHILDREN2: Conversation.read,
    OpCode.GET_ACL: Conversation.get_acl,
    OpCode.SET_ACL: Conversation.set_acl,
    OpCode.SYNC: Conversation.sync,
    OpCode.GET_EPHEMERALS: Conversation.ephemerals,
    OpCode.GET_ALL_CHILDREN_NUMBER: Conversation.descendants,
    OpCode.MULTI: Conversation.write_all,
    OpCode.MULTI_READ: Conversation.read_all,
    OpCode.SET_WATCHES: Conversation.set_watches,
    OpCode.SET_WATCHES2: Conversation.set_watches,
    OpCode.CHECK_WATCHES: Conversation.watcher_kind,
    OpCode.REMOVE_WATCHES: Conversation.watcher_kind,
    OpCode.AUTH: Conversation.authenticate,
    OpCode.PING: Conversation.ping,
    OpCode.CLOSE_SESSION: Conversation.close_session,
}
