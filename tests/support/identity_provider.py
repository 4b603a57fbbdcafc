"""An identity provider on this machine: signs tokens, serves its keys, grants credentials."""

import base64
import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from kctl.runtime.real.clock import RealClock

ISSUER = "https://idp.example"
AUDIENCE = "kafka"
CLIENT_ID, CLIENT_SECRET = "alice", "client secret+&="


def now_s():
    """Seconds since the epoch."""
    return RealClock().wall_ms() / 1000


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value):
    return base64url(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def part(document):
    return base64url(json.dumps(document).encode())


def claims_of(subject, **changes):
    """Claims that are valid for an hour, with `changes`; None removes one."""
    now = int(now_s())
    claims = {"sub": subject, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 3600}
    claims.update(changes)
    return {name: value for name, value in claims.items() if value is not None}


class RsaKey:
    """An RSA key with an id."""

    def __init__(self, key_id="rsa", bits=2048):
        self.key_id = key_id
        self.key = rsa.generate_private_key(65537, bits)

    def jwk(self):
        numbers = self.key.public_key().public_numbers()
        return {"kty": "RSA", "kid": self.key_id, "n": number(numbers.n), "e": number(numbers.e)}

    def sign(self, name, data):
        digest = getattr(hashes, f"SHA{name[2:]}")()
        if name.startswith("PS"):
            pss = padding.PSS(padding.MGF1(digest), digest.digest_size)
            return self.key.sign(data, pss, digest)
        return self.key.sign(data, padding.PKCS1v15(), digest)


class EcKey:
    """A key on a curve, with an id."""

    def __init__(self, key_id="ec", curve="P-256"):
        self.key_id, self.curve = key_id, curve
        curves = {"P-256": ec.SECP256R1, "P-384": ec.SECP384R1, "P-521": ec.SECP521R1}
        self.key = ec.generate_private_key(curves[curve]())
        self.half = (self.key.key_size + 7) // 8

    def jwk(self):
        numbers = self.key.public_key().public_numbers()
        x, y = (base64url(it.to_bytes(self.half, "big")) for it in (numbers.x, numbers.y))
        return {"kty": "EC", "kid": self.key_id, "crv": self.curve, "x": x, "y": y}

    def sign(self, name, data):
        r, s = decode_dss_signature(
            self.key.sign(data, ec.ECDSA(getattr(hashes, f"SHA{name[2:]}")()))
        )
        return r.to_bytes(self.half, "big") + s.to_bytes(self.half, "big")


def token(key, claims, algorithm="RS256", **header):
    """A signed token; `header` changes its header."""
    signed = f"{part({'alg': algorithm, 'kid': key.key_id, **header})}.{part(claims)}"
    return f"{signed}.{base64url(key.sign(algorithm, signed.encode()))}"


def jwks(*keys):
    return json.dumps({"keys": [key.jwk() for key in keys]}).encode()


class IdentityProvider:
    """Serves `/jwks` and `/token`; `lifetime_s` is that of its tokens."""

    def __init__(self, port, scheme="http"):
        self.keys = [RsaKey("first")]
        self.lifetime_s = 3600
        self.grants = []
        self.url = f"{scheme}://127.0.0.1:{port}"

    def grant(self, body, authorization):
        wanted = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        form = parse_qs(body.decode())
        # Form-encoded, as RFC 6749 demands.
        if wanted != "alice:client+secret%2B%26%3D" or form["grant_type"] != ["client_credentials"]:
            return None
        self.grants.append(form)
        now = now_s()
        claims = claims_of(CLIENT_ID, iat=now, exp=now + self.lifetime_s)
        answer = {"access_token": token(self.keys[-1], claims), "token_type": "Bearer"}
        return json.dumps(answer).encode()


@contextmanager
def running_identity_provider(tls=None):
    """An IdentityProvider that is served by a thread, over https with a server's SSLContext."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer(jwks(*provider.keys) if self.path == "/jwks" else None)

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(provider.grant(body, self.headers["Authorization"]))

        def answer(self, document):
            self.send_response(200 if document else 401)
            self.end_headers()
            self.wfile.write(document or b"secret of the provider")

        def log_message(self, *_arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        # The handshake is the handler's: one that fails must not end the server.
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    provider = IdentityProvider(server.server_port, "http" if tls is None else "https")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
