"""pyjet serve: the server, with llama-server's options."""

from __future__ import annotations

import ssl
import sys
import threading
import time
import urllib.error
import urllib.request

import click

EXAMPLE = """
The server is ready. Ask it for a tool call:

curl -s {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{{
  "messages": [{{"role": "user", "content": "What is the weather in Paris?"}}],
  "temperature": 0,
  "tools": [{{"type": "function", "function": {{"name": "get_weather",
    "description": "Get the current weather in a city",
    "parameters": {{"type": "object", "properties": {{"city": {{"type": "string"}}}}, "required": ["city"]}}}}}}]
}}'
"""


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
@click.option("--show-curl", is_flag=True, help="Once the server is ready, print a request to try it with.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def serve(show_curl: bool, options: tuple[str, ...]) -> None:
    """Start the server; OPTIONS are those of llama-server.

    \b
    The ones that matter first:
      -m FILE               GGUF file (default: the embedded pyjet-tiny)
      -c N                  context of all slots together
      --agents N            requests that run at the same time
      --host H, --port P    where to listen (127.0.0.1, 8080)
      --api-key KEY         demand a key
      -ctk T, -ctv T        KV cache type: f16 or q8_0
      -t N                  CPU threads
      --spec-type T,...     drafts for speed: draft-mtp, ngram-simple (same text with and without)
    `pyjet-server --help` lists all of them with their environment variables.
    """
    from pyjet.server.main import main as serve_main

    if show_curl:
        threading.Thread(target=print_example, args=(server_url(options),), daemon=True).start()
    sys.exit(serve_main(list(options)))


def server_url(options: tuple[str, ...]) -> str:
    """Where a client on this machine reaches the server; the default address when the options are wrong."""
    from pyjet.server.option_parser import OptionError, parse

    try:
        settings = parse(options).options
    except OptionError:
        return "http://127.0.0.1:8080"
    host = settings.host[0] if settings.host else "127.0.0.1"
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    scheme = "https" if settings.ssl_cert_file else "http"
    return f"{scheme}://{host}:{settings.port}{settings.api_prefix}"


def print_example(url: str, timeout_s: float = 600) -> None:
    """Wait until the server is healthy, then print the example."""
    deadline = time.monotonic() + timeout_s
    # whether it answers is all that matters here, and a certificate is seldom made for 127.0.0.1
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5, context=anybody):
                print(EXAMPLE.format(url=url), flush=True)
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
