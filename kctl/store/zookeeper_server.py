"""ZooKeeperServer: serves a ZnodeDatabase over ZooKeeper's client protocol on a port.

The shell of Conversation: it accepts connections, splits bytes into frames, sends, and enforces the
limits. A client that does not read its responses is not read from either; one with too many unsent
events is disconnected, and sets its watches again on its next connection. A client that connects
and sends no request is disconnected after GREETING_MS; an expired session closes its connection.

ZooKeeper: org.apache.zookeeper.server.NIOServerCnxnFactory, NIOServerCnxn.
"""

from dataclasses import replace

from kctl.errors import CorruptDataError
from kctl.model import Endpoint
from kctl.protocol.framing import BufferPool, FrameBuffer, Scratch
from kctl.runtime.disk import Disk
from kctl.runtime.entropy import Entropy
from kctl.runtime.future import Future
from kctl.runtime.network import Listener, Transport
from kctl.runtime.runtime import Runtime
from kctl.store.database import ZnodeDatabase
from kctl.store.tree import MAX_DATA_BYTES
from kctl.store.zookeeper_session import Conversation, Passwords
from kctl.store.zookeeper_words import WORD_BYTES, ServerFacts, answer, is_word

# jute.maxbuffer: a znode's data, and room for its path and other fields.
FRAME_BYTES_MAX = MAX_DATA_BYTES + 64 * 1024
CONNECTIONS_MAX = 2_000
GREETING_MS = 10_000
# Minimum time between two lines about clients, as many clients may fail in the same way.
COMPLAINT_MS = 100
# Unsent bytes above which a client is not read from, and above which it is disconnected.
UNSENT_BYTES_PAUSE = 1 << 20
UNSENT_BYTES_MAX = 64 << 20

SECRET_BYTES = 32
_SECRET = "session-secret"


def session_passwords(disk: Disk, entropy: Entropy, directory: str) -> Passwords:
    """Return the passwords of sessions, the same as long as `directory` exists, so that sessions
    outlive the process.

    The secret they derive from allows to take over any session, so only its owner can read it.
    """
    path = f"{directory}/{_SECRET}"
    if not disk.exists(path):
        disk.make_directory(directory)
        disk.write_file(path, entropy.random_bytes(SECRET_BYTES), is_private=True)
    # Earlier versions of kctl left it readable for all users.
    disk.make_private(path)
    secret = disk.read_file(path)
    if len(secret) != SECRET_BYTES:
        raise CorruptDataError(
            f"{path} has {len(secret)} bytes instead of {SECRET_BYTES}",
            hint="delete it: clients then begin new sessions",
        )
    return Passwords(secret)


def serve_store(
    runtime: Runtime, database: ZnodeDatabase, directory: str, listener: Endpoint
) -> "tuple[ZooKeeperServer, Endpoint]":
    """Serve `database`, which is kept in `directory`, at `listener`; return the server, and the
    listener with the port in use. Raise KctlError if that fails."""
    passwords = session_passwords(runtime.disk, runtime.entropy, directory)
    server = ZooKeeperServer(runtime, database, passwords)
    return server, replace(listener, port=server.start(listener.host, listener.port))


class ZooKeeperServer:
    """Owns a listener and its connections; the caller owns the database."""

    def __init__(self, runtime: Runtime, database: ZnodeDatabase, passwords: Passwords) -> None:
        self.runtime = runtime
        self.database = database
        self.passwords = passwords
        # Shared by all connections; see FrameBuffer.
        self.scratch = Scratch()
        self.pool = BufferPool()
        # Frames received on all connections.
        self.received = 0
        self.sent = 0
        self._listener: Listener | None = None
        self._connections: dict[_Connection, None] = {}
        self._is_accepting = True
        self._complained_ms = -COMPLAINT_MS
        self._emptied: Future[None] | None = None

    def start(self, host: str, port: int) -> int:
        """Listen, and return the port in use; raise KctlError if that fails."""
        self._listener = self.runtime.network.listen(host, port, self._accept)
        return self._listener.port

    @property
    def connection_count(self) -> int:
        """Return the number of open connections."""
        return len(self._connections)

    def _accept(self, transport: Transport) -> "_Connection":
        connection = _Connection(self, transport)
        self._connections[connection] = None
        if len(self._connections) >= CONNECTIONS_MAX and self._listener is not None:
            self._is_accepting = False
            self._listener.pause_accepting()
        return connection

    def connection_lost(self, connection: "_Connection") -> None:
        """Forget a connection that is closed."""
        del self._connections[connection]
        if not self._is_accepting and self._listener is not None:
            self._is_accepting = True
            self._listener.resume_accepting()
        if self._emptied is not None and not self._connections and not self._emptied.done:
            self._emptied.set_result(None)

    def warn(self, message: str) -> None:
        """Log a warning, unless there was one just now."""
        now_ms = self.runtime.clock.monotonic_ms()
        if now_ms - self._complained_ms >= COMPLAINT_MS:
            self._complained_ms = now_ms
            self.runtime.trace.warning(message)

    def until_empty(self) -> Future[None]:
        """Return a future that is done when the last client has left; no client is disconnected."""
        if self._emptied is None:
            self._emptied = self.runtime.scheduler.future()
            if not self._connections:
                self._emptied.set_result(None)
        return self._emptied

    def close(self) -> None:
        """Stop accepting and close all connections; sessions continue until their timeouts."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self._connections):
            connection.close()

    def facts(self) -> ServerFacts:
        """Return what the four-letter-word commands report."""
        tree = self.database.tree
        return ServerFacts(
            zxid=tree.last_zxid,
            znodes=len(tree.nodes),
            ephemerals=sum(node.ephemeral_owner != 0 for node in tree.nodes.values()),
            watches=sum(1 for _ in tree.watches.armed()),
            sessions=len(tree.sessions),
            data_bytes=sum(len(path) + len(node.data) for path, node in tree.nodes.items()),
            received=self.received,
            sent=self.sent,
            connections=[
                (*each.transport.peer, each.conversation.session_id) for each in self._connections
            ],
        )


class _Connection:
    """The Receiver of one accepted connection, and its conversation's Peer."""

    def __init__(self, server: ZooKeeperServer, transport: Transport) -> None:
        self.transport = transport
        self.conversation = Conversation(server.database, server.passwords, self)
        self._server = server
        self._frames = FrameBuffer(server.scratch, server.pool, FRAME_BYTES_MAX)
        # The first bytes, until they are known to be a command or a frame's length.
        self._head = bytearray()
        self._is_paused = False
        self._greeting_timer = server.runtime.scheduler.call_later(
            GREETING_MS, self._greeting_timed_out
        )

    # --- Receiver

    def get_buffer(self) -> memoryview:
        """Return the buffer for the next bytes."""
        if len(self._head) < WORD_BYTES:
            return self._server.scratch.view[: WORD_BYTES - len(self._head)]
        return self._frames.get_buffer()

    def buffer_updated(self, count: int) -> None:
        """Serve the frames that are complete."""
        if len(self._head) < WORD_BYTES:
            self._head += self._server.scratch.view[:count]
            if len(self._head) < WORD_BYTES:
                return
            first = bytes(self._head)
            if is_word(first):
                self.transport.send([answer(first, self._server.facts)])
                self.transport.close()
                return
            self._frames.get_buffer()[:WORD_BYTES] = self._head
            count = WORD_BYTES
        self._frames.buffer_updated(count)
        self._serve()

    def _serve(self) -> None:
        conversation = self.conversation
        try:
            while not self._must_wait():
                frame = self._frames.next_frame()
                if frame is None:
                    break
                self._server.received += 1
                conversation.receive(frame)
        except CorruptDataError as error:
            self.warn(str(error))
            conversation.connection_lost()
            self.transport.close()
        self._frames.release()
        if conversation.is_serving:
            self._greeting_timer.cancel()

    def _must_wait(self) -> bool:
        if self.conversation.is_full:
            self._pause()
            return True
        if self.transport.unsent_bytes() > UNSENT_BYTES_PAUSE:
            self._pause()
            self.transport.when_sent(self._go_on)
            return True
        return False

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def _go_on(self) -> None:
        self._serve()
        if not self._must_wait() and self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        """End the conversation; the session waits for its client."""
        self._greeting_timer.cancel()
        self.conversation.connection_lost()
        self._frames.close()
        self._server.connection_lost(self)

    def _greeting_timed_out(self) -> None:
        if not self.conversation.is_serving:
            self.transport.abort()

    # --- Peer

    def send(self, frame: bytes) -> None:
        """Send a frame; disconnect a client that does not read."""
        self._server.sent += 1
        self.transport.send([frame])
        if self.transport.unsent_bytes() > UNSENT_BYTES_MAX:
            self.warn("it does not read its responses")
            self.transport.abort()

    def close(self) -> None:
        """Send what is queued, then close."""
        self.transport.close()

    def warn(self, message: str) -> None:
        """Log a warning about this client."""
        host, port = self.transport.peer
        self._server.warn(f"ZooKeeper client {host}:{port}: {message}")

    def responses_sent(self) -> None:
        """Continue with requests that arrived meanwhile, after responses have left."""
        if self._is_paused:
            self._go_on()
