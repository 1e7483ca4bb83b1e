"""``pyjet-server``: llama-server's command line.

The HTTP side listens at once and answers 503 while a thread loads the model. Exit codes: 0 after SIGINT or
SIGTERM, 1 for wrong options, an address in use, a model that cannot be loaded, or a second signal.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence

from pyjet.server.app import create_app
from pyjet.server.device_choice import DeviceError, device_list
from pyjet.server.help_text import completion_script, help_text, version_text
from pyjet.server.http import HttpServer
from pyjet.server.http_sockets import BindError
from pyjet.server.http_tls import TlsError
from pyjet.server.loading_bar import LoadingBar
from pyjet.server.log import logging_to
from pyjet.server.option_parser import CommandLine, OptionError, parse
from pyjet.server.options import ServerOptions
from pyjet.server.startup import Startup, StartupError

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server with these arguments (default: the process's own); returns the exit code."""
    try:
        line = parse(sys.argv[1:] if arguments is None else arguments)
    except OptionError as error:
        sys.stderr.write(str(error))
        return 1
    if line.action:
        return _act(line.action)
    try:
        with logging_to(line.options):
            return _serve(line)
    except OSError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def _act(action: str) -> int:
    """Options that print something and end."""
    if action == "version":
        sys.stderr.write(version_text())
        return 0
    try:
        texts = {
            "help": help_text,
            "list-devices": device_list,
            "cache-list": lambda: "number of models in cache: 0\n",
            "completion-bash": completion_script,
        }
        sys.stdout.write(texts[action]())
        sys.stdout.flush()
    except DeviceError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except BrokenPipeError:  # for example `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _serve(line: CommandLine) -> int:
    for path in line.config_files:
        _log.info("using config file: %s", path)
    for warning in line.warnings:
        _log.warning(warning.removeprefix("warn: "))
    try:
        server = HttpServer(create_app(None, line.options), line.options)
    except (BindError, TlsError) as error:
        _log.error("%s", error)
        return 1
    return Run(server, line.options).wait()


class Run:
    """One run of the server: loading in the background, serving, and the way out."""

    def __init__(self, server: HttpServer, options: ServerOptions) -> None:
        self._server = server
        self._options = options
        show_bar = not (options.log_disable or options.log_jsonl) and options.verbosity >= 3
        self._bar = LoadingBar(enabled=show_bar)
        self._startup = Startup(options, self._bar)
        self._failed = False
        self._signals = 0

    def wait(self) -> int:
        """Serve until a signal or a failed start; returns the exit code."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self._on_signal)
        threading.Thread(target=self._load, name="load", daemon=True).start()
        self._server.run(on_stop=self._startup.close)
        self._bar.clear()
        return 1 if self._failed else 0

    def _load(self) -> None:
        _log.info("loading model")
        try:
            app = create_app(self._startup.load(), self._options)
        except StartupError as error:
            self._fail(str(error))
            return
        except Exception as error:
            _log.debug("details", exc_info=error)
            self._fail(f"{type(error).__name__}: {error}")
            return
        self._bar.clear()
        self._server.app = app
        _log.info("model loaded")
        for address in self._server.addresses:
            _log.info("listening on %s", address)

    def _fail(self, reason: str) -> None:
        self._bar.clear()
        if self._signals:
            return
        _log.error("error loading model: %s", reason)
        _log.error("exiting due to model loading error")
        self._failed = True
        self._server.stop()

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signals += 1
        if self._signals > 1:
            os.write(2, b"received a second signal, exiting at once\n")
            os._exit(1)
        self._server.stop()


if __name__ == "__main__":
    sys.exit(main())
