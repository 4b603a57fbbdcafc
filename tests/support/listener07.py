"""A broker of Kafka 0.7 that only listens: it takes what producers send, and never answers."""

import socket
import threading

from kctl.protocol.kafka07 import MultiProduceRequest, decode_request
from kctl.records.message07 import messages
from tests.support.waiting import wait_for


class Listener07:
    """Takes what producers of Kafka 0.7 send; it never answers, as 0.7 never does."""

    def __init__(self, broker_id):
        self.broker_id = broker_id
        self.connections = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self):
        return f"{self.broker_id}:127.0.0.1:{self.port}"

    @property
    def frames(self):
        """The requests of all connections, without their sizes."""
        found = []
        for data in self.connections:
            position = 0
            while position + 4 <= len(data):
                size = int.from_bytes(data[position : position + 4])
                found.append(bytes(data[position + 4 : position + 4 + size]))
                position += 4 + size
        return found

    @property
    def received(self):
        """(topic, partition, payload) of all messages."""
        found = []
        for frame in self.frames:
            request = decode_request(frame)
            parts = request.parts if isinstance(request, MultiProduceRequest) else [request]
            for part in parts:
                found += [
                    (part.topic, part.partition, bytes(it.message.payload))
                    for it in messages(part.message_set)
                ]
        return found

    def wait_for(self, count):
        """The messages, once there are `count`."""
        wait_for(lambda: len(self.received) >= count, lambda: f"{self.received}")
        return self.received

    def close(self):
        """Close as a broker that dies: nothing listens, and all connections are reset."""
        if self._server.fileno() < 0:
            return
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for it in self._sockets:
            it.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            it.close()

    def _accept(self):
        while True:
            try:
                peer, _ = self._server.accept()
            except OSError:
                return
            data = bytearray()
            self.connections.append(data)
            self._sockets.append(peer)
            threading.Thread(target=self._read, args=(peer, data), daemon=True).start()

    def _read(self, peer, data):
        try:
            while chunk := peer.recv(65536):
                data += chunk
        except OSError:
            return
