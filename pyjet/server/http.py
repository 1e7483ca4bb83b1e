"""The HTTP server around the WSGI application: waitress with llama-server's manners.

One thread does all socket input; each request runs in a thread of a pool that grows on demand and sends every
piece of its answer at once.
"""

from __future__ import annotations

import logging
import os
import resource
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

from flask import has_request_context, request
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.server import TcpWSGIServer, UnixWSGIServer

from pyjet.server.app import MAX_BODY_BYTES
from pyjet.server.http_channel import SERVER_NAME, Channel
from pyjet.server.http_parser import MAX_HEADER_BYTES
from pyjet.server.http_pool import TaskPool
from pyjet.server.http_sockets import address_text, is_unix, listen, remove_unix_sockets
from pyjet.server.http_tls import TlsSocket, tls_context
from pyjet.server.options import ServerOptions

IDLE_SECONDS = 75
"""Idle connections stay open a little longer than clients keep them, so that none closes under a new request."""

_MAX_CONNECTIONS = 8192
_RESERVED_FILES = 128
_STOP_SECONDS = 5.0
_CLEANUP_SECONDS = 5
_PIPELINED_REQUESTS = 16

_log = logging.getLogger(__name__)


def client_gone() -> Callable[[], bool]:
    """For the current request: a function that tells, from any thread, whether its client went away."""
    check = request.environ.get("waitress.client_disconnected") if has_request_context() else None
    return check if check is not None else lambda: False


def base_threads(options: ServerOptions) -> int:
    """HTTP threads that always exist when needed; more start on demand."""
    if options.threads_http > 0:
        return options.threads_http
    return max(options.n_slots + 4, (os.cpu_count() or 1) - 1)


class HttpServer:
    """Listens as soon as it is built; ``run`` serves until ``stop``.

    ``app`` may be exchanged at any time (``server.app = ...``): the next request uses the new one.
    Raises TlsError and BindError.
    """

    def __init__(self, app: Callable[..., Any], options: ServerOptions) -> None:
        self.app = app
        self._options = options
        self._pool = TaskPool(base_threads(options))
        self._sockets: dict[int, Any] = {}
        self._stopping = threading.Event()
        # Whoever stops the server writes to a pipe that the end of ``run`` closes: not after it. Reentrant, because a
        # signal may come in between.
        self._closing = threading.RLock()
        self._is_closed = False
        tls = tls_context(options)
        sockets = listen(options)
        self.addresses = [address_text(sock, host, tls=tls is not None) for sock, host in zip(sockets, options.host)]
        adjustments = _adjustments(options)
        self._listeners = [
            (_UnixListener if is_unix(host) else _TcpListener)(
                self._call,
                map=self._sockets,
                _sock=sock,
                dispatcher=self._pool,
                adj=adjustments,
                bind_socket=False,
                sockinfo=(sock.family, sock.type, sock.proto, sock.getsockname()),
            )
            for sock, host in zip(sockets, options.host)
        ]
        for listener in self._listeners:
            listener.tls = tls

    @property
    def port(self) -> int:
        """Port of the first TCP address."""
        return next(int(listener.effective_port) for listener in self._listeners if isinstance(listener, _TcpListener))

    def run(self, on_stop: Callable[[], None] | None = None) -> None:
        """Serve until ``stop``; then call ``on_stop`` in a thread and let running answers end (a few seconds)."""
        while not self._stopping.is_set():
            self._poll(1.0)
        for listener in self._listeners:
            listener.stop_accepting()
        remove_unix_sockets(self._options)
        ended = threading.Event()
        threading.Thread(target=_call_then_set, args=(on_stop, ended), daemon=True).start()
        deadline = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < deadline and not (ended.is_set() and self._is_quiet()):
            self._poll(0.05)
        self._pool.shutdown()
        with self._closing:
            self._is_closed = True
        wasyncore.close_all(self._sockets, ignore_all=True)

    def stop(self) -> None:
        """End ``run``; may be called from any thread and from a signal handler."""
        self._stopping.set()
        with self._closing:
            if not self._is_closed:
                self._listeners[0].pull_trigger()

    def _call(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        return self.app(environ, start_response)

    def _is_quiet(self) -> bool:
        channels = [item for item in list(self._sockets.values()) if isinstance(item, Channel)]
        return self._pool.n_running == 0 and all(channel.is_idle for channel in channels)

    def _poll(self, timeout: float) -> None:
        """One round of the I/O loop. Connections with nothing to do are still watched for resets."""
        poller = select.poll()
        watched = dict(self._sockets)
        for descriptor, item in watched.items():
            flags = 0
            if item.readable():
                flags |= select.POLLIN | select.POLLPRI
            if item.writable() and not item.accepting:
                flags |= select.POLLOUT
            if flags or isinstance(item, Channel):
                poller.register(descriptor, flags)
        for descriptor, flags in poller.poll(timeout * 1000):
            item = watched[descriptor]
            # one that was closed in this round has perhaps left its number to a new connection
            if self._sockets.get(descriptor) is item:
                wasyncore.readwrite(item, flags)


def _call_then_set(function: Callable[[], None] | None, event: threading.Event) -> None:
    try:
        if function is not None:
            function()
    finally:
        event.set()


class _Listener:
    """What both kinds of listening sockets do differently from waitress."""

    tls: ssl.SSLContext | None = None

    def channel_class(self, server: Any, conn: socket.socket, address: Any, adjustments: Any, **settings: Any) -> None:
        """Make a channel of an accepted connection; it registers itself."""
        try:
            sock = conn if self.tls is None else TlsSocket(conn, self.tls)
        except OSError:  # the client has left already
            conn.close()
            return
        Channel(server, sock, address, adjustments, **settings)

    def stop_accepting(self: Any) -> None:
        self.accepting = False
        self.socket.close()
        self.del_channel()

    def maintenance(self: Any, now: float) -> None:
        """Close what was silent for too long: idle connections, requests and answers that do not move.

        A connection whose request is being worked on may be silent for as long as that takes.
        """
        for channel in list(self.active_channels.values()):
            if channel.requests and not channel.total_outbufs_len:
                continue
            between = channel.is_idle and channel.has_served
            if now - channel.last_activity > (IDLE_SECONDS if between else self.adj.channel_timeout):
                channel.give_up()


class _TcpListener(_Listener, TcpWSGIServer):
    pass


class _UnixListener(_Listener, UnixWSGIServer):
    pass


def _adjustments(options: ServerOptions) -> Adjustments:
    return Adjustments(
        ident=SERVER_NAME,
        threads=1,  # the pool is ours
        channel_request_lookahead=_PIPELINED_REQUESTS,  # > 0: keep reading, which notices clients that leave
        connection_limit=_connection_limit(),
        channel_timeout=options.timeout,
        cleanup_interval=min(_CLEANUP_SECONDS, options.timeout),
        max_request_header_size=MAX_HEADER_BYTES,
        max_request_body_size=MAX_BODY_BYTES + 1,
        recv_bytes=65536,
        outbuf_high_watermark=1 << 20,
        log_socket_errors=False,
        expose_tracebacks=False,
        clear_untrusted_proxy_headers=False,
    )


def _connection_limit() -> int:
    """As many connections as file descriptors allow; the soft limit is raised to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_CONNECTIONS + _RESERVED_FILES
    if hard == resource.RLIM_INFINITY or hard >= wanted:
        target = max(soft, wanted)
    else:
        target = hard
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        soft = target
    except (OSError, ValueError):
        pass
    return max(16, min(_MAX_CONNECTIONS, soft - _RESERVED_FILES))
