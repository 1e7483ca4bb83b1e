"""Listening sockets: several addresses, UNIX sockets, clear errors."""

from __future__ import annotations

import os
import socket
import stat

from pyjet.server.options import ServerOptions

_BACKLOG = 1024


class BindError(Exception):
    """An address cannot be used; the text says which and why."""


def is_unix(host: str) -> bool:
    """Whether an entry of ``--host`` names a UNIX socket."""
    return host.endswith(".sock")


def listen(options: ServerOptions) -> list[socket.socket]:
    """Bind and listen on every address. Raises BindError; nothing stays open then."""
    sockets: list[socket.socket] = []
    several_tcp = sum(not is_unix(host) for host in options.host) > 1
    try:
        for host in options.host:
            sock = _unix_socket(host) if is_unix(host) else _tcp_socket(host, options, only_ipv6=several_tcp)
            sockets.append(sock)
            sock.listen(_BACKLOG)
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def address_text(sock: socket.socket, host: str, *, tls: bool = False) -> str:
    """The address for the ready line: ``http://127.0.0.1:8080``, ``https://...`` or ``unix:///run/x.sock``."""
    if is_unix(host):
        return f"unix://{host}"
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"{'https' if tls else 'http'}://{shown}:{sock.getsockname()[1]}"


def remove_unix_sockets(options: ServerOptions) -> None:
    """Remove the files of our UNIX sockets when the server ends."""
    for host in filter(is_unix, options.host):
        try:
            os.unlink(host)
        except OSError:
            pass


def _tcp_socket(host: str, options: ServerOptions, *, only_ipv6: bool) -> socket.socket:
    try:
        found = socket.getaddrinfo(host.strip("[]"), options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise _bind_error(host, options.port, error) from None
    failure: OSError = OSError("no address")
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if options.reuse_port:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(only_ipv6))
            sock.bind(address)
            return sock
        except OSError as error:
            sock.close()
            failure = error
    raise _bind_error(host, options.port, failure)


def _unix_socket(path: str) -> socket.socket:
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
    except OSError as error:
        sock.close()
        raise BindError(f"couldn't bind HTTP server socket, path: {path} ({error.strerror or error})") from None
    return sock


def _remove_stale(path: str) -> None:
    """Remove the file of a socket that nobody listens on any more."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise BindError(f"couldn't bind HTTP server socket, path: {path} (a file of that name exists)")
    except OSError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except OSError:
            os.unlink(path)
            return
    raise BindError(f"couldn't bind HTTP server socket, path: {path} (another server listens on it)")


def _bind_error(host: str, port: int, error: OSError) -> BindError:
    reason = error.strerror or str(error)
    return BindError(f"couldn't bind HTTP server socket, hostname: {host}, port: {port} ({reason})")
