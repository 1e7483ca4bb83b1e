"""TLS for the I/O loop: a certificate's context, and a socket that looks like a plain non-blocking one."""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

from pyjet.server.options import ServerOptions


class TlsError(Exception):
    """Certificate and key cannot be used; the text says which file and why."""


def tls_context(options: ServerOptions) -> ssl.SSLContext | None:
    """The context for ``--ssl-cert-file`` and ``--ssl-key-file``; None without them. Raises TlsError."""
    certificate, key = options.ssl_cert_file, options.ssl_key_file
    if certificate is None or key is None:
        return None
    for option, path in (("--ssl-cert-file", certificate), ("--ssl-key-file", key)):
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise TlsError(f"{option}: failed to open file '{path}': {error.strerror or error}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # a key with a password would make the library ask for it on the terminal
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(f"certificate '{certificate}' and key '{key}' cannot be used: they must be PEM files, belong "
                       f"together and have no password ({error})") from None
    return context


class TlsSocket:
    """A server's side of one TLS connection over an accepted socket.

    The handshake happens in the first ``recv``. What the protocol must wait for is reported as BlockingIOError, as a
    plain socket does it. The lock is there because one thread reads while others send, which the library forbids.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        sock.setblocking(False)
        self._lock = threading.Lock()
        self._socket = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def recv(self, size: int) -> bytes:
        """Up to ``size`` bytes, and all of a record that has been decrypted; nothing when the connection ended.

        A client that only said that it has no more to send is still there: that alone is not the end.
        """
        with self._lock, _waits_as_blocking():
            data = self._socket.recv(size)
            while data and (left := self._socket.pending()):
                data += self._socket.recv(left)
            if not data:
                socket.socket.recv(self._socket, 1, socket.MSG_PEEK)  # BlockingIOError while TCP is open
            return data

    def send(self, data: bytes) -> int:
        with self._lock, _waits_as_blocking():
            return self._socket.send(data)

    def close(self) -> None:
        """Tell the client that this is the end, if that is possible at once, and close."""
        with self._lock:
            with contextlib.suppress(OSError, ValueError):
                self._socket.unwrap()
            self._socket.close()


@contextlib.contextmanager
def _waits_as_blocking() -> Iterator[None]:
    """Turns "the protocol needs to read or write first" into the error of a socket that would block."""
    try:
        yield
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        raise BlockingIOError(errno.EWOULDBLOCK, "TLS would block") from None
