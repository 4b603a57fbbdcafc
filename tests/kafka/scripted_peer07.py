"""ScriptedPeer07: a server of Kafka 0.7's wire that answers each frame as a function says."""

import socket
import struct
import threading

CLOSE = object()
SILENCE = object()


class ScriptedPeer07:
    """Answers the frames (without sizes) of all connections in threads; `requests` are in order."""

    def __init__(self, answer):
        self._answer = answer
        self.requests = []
        self.connections = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = self._server.getsockname()
        self._peers = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for peer in self._peers:
            peer.close()

    def _accept(self):
        while True:
            try:
                peer, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            self._peers.append(peer)
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer):
        try:
            with peer, peer.makefile("rb") as stream:
                while len(size := stream.read(4)) == 4:
                    frame = stream.read(struct.unpack(">i", size)[0])
                    self.requests.append(size + frame)
                    answer = self._answer(size + frame)
                    if answer is CLOSE:
                        peer.shutdown(socket.SHUT_RDWR)
                        return
                    if answer is not SILENCE:
                        peer.sendall(answer)
        except OSError:
            return
