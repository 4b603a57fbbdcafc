"""A client of ZooKeeper's protocol byte by byte, on a test's own loop."""

import struct

from kctl.store.jute import encode_buffer, encode_int, encode_long
from tests.support.real_loop import RealLoop, connect

ANYONE = struct.pack(">ii", 1, 31) + encode_buffer(b"world") + encode_buffer(b"anyone")


class RawClient:
    """Sends the given bytes, and reads whole frames."""

    def __init__(self, loop: RealLoop, port: int) -> None:
        self.peer = connect(loop, port)
        self.loop = loop
        self.session_id = 0
        self.password = bytes(16)
        self._xid = 0

    def connect(self, session=None, *, timeout_ms=10_000, last_zxid=0):
        """Ask for a session, new or `session` (id, password); the timeout granted, 0: refused."""
        session_id, password = session or (0, bytes(16))
        body = struct.pack(">iqiq", 0, last_zxid, timeout_ms, session_id)
        self.peer.send(encode_buffer(body + encode_buffer(password) + b"\0"))
        answer = self.frame()
        granted_ms, self.session_id, length = struct.unpack_from(">iqi", answer, 4)
        self.password = answer[20 : 20 + length]
        return granted_ms

    @property
    def session(self):
        return self.session_id, self.password

    def ask(self, opcode, body=b"", xid=None):
        """(error, response) of a request; events before it are kept in `events`."""
        self.say(opcode, body, xid)
        return self.answer()

    def say(self, opcode, body=b"", xid=None):
        self._xid += 1
        xid = self._xid if xid is None else xid
        self.peer.send(encode_buffer(struct.pack(">ii", xid, opcode) + body))

    def answer(self):
        _, _, error, response = self.reply()
        return error, response

    def reply(self):
        """(xid, zxid, error, response) of the next frame."""
        frame = self.frame()
        return *struct.unpack_from(">iqi", frame), frame[16:]

    def frame(self):
        return self.peer.receive_frame()

    def is_closed(self):
        self.peer.wait_for_close()
        return True


def text(value):
    return encode_buffer(value.encode())


def create(path, data=b"", flags=0, acl=ANYONE):
    return text(path) + encode_buffer(data) + acl + encode_int(flags)


def watches_again(last_zxid, data=(), exists=(), children=()):
    lists = (data, exists, children)
    encoded = (encode_int(len(paths)) + b"".join(map(text, paths)) for paths in lists)
    return encode_long(last_zxid) + b"".join(encoded)
