"""TLS before a Postgres server that has none of its own: a certificate, then the server's bytes."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

_SSL_REQUEST = struct.pack("!II", 8, 80_877_103)


@contextlib.contextmanager
def tls_front(server: tuple[str, int], certificate: Path) -> Iterator[int]:
    """Yield the port of a front to `server`; `certificate` has the chain to present, and its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate)

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            if self.request.recv(8) != _SSL_REQUEST:
                return
            self.request.sendall(b"S")
            # A client that does not trust the certificate ends the handshake.
            with (
                contextlib.suppress(OSError),
                context.wrap_socket(self.request, server_side=True) as client,
                socket.create_connection(server) as behind,
            ):
                answers = threading.Thread(target=_copy, args=(behind, client), daemon=True)
                answers.start()
                _copy(client, behind)
                answers.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection) as front:
        front.daemon_threads = True
        threading.Thread(target=front.serve_forever, daemon=True).start()
        yield front.server_address[1]
        front.shutdown()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
