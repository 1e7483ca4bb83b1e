"""Count right tool calls over the chat endpoint: ``make eval``."""

from __future__ import annotations

import collections
import contextlib
import json
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from bench.server import running_server
from compat_tests.eval.chats import Chat, is_right, load_chats, request_body
from compat_tests.eval.drafts import drafting_options, report_drafts

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results" / "eval-chats.json"
LLAMA_CPP_RIGHT = 36  # of the 40 chats, llama-server b11434 on the embedded Q4_K_M file


def ask(url: str, chat: Chat) -> dict[str, Any]:
    """The answer's body, or {"error": text}."""
    request = urllib.request.Request(
        url + "/v1/chat/completions", json.dumps(request_body(chat)).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=600) as response:
            body: dict[str, Any] = json.load(response)
    except (OSError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return body if body.get("choices") else {"error": f"no choices in {json.dumps(body)[:200]}"}


def message_of(body: dict[str, Any]) -> dict[str, Any]:
    """The message of an answer's body; of a failure the body itself."""
    message: dict[str, Any] = body["choices"][0]["message"] if "choices" in body else body
    return message


def count(chats: list[Chat], messages: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """Right and all, by kind of chat; "all" comes last."""
    right: collections.Counter[str] = collections.Counter()
    total: collections.Counter[str] = collections.Counter()
    for chat, message in zip(chats, messages):
        for key in (chat.kind, "thinking on" if chat.enable_thinking else "thinking off", "all"):
            total[key] += 1
            right[key] += is_right(chat, message)
    keys = sorted(total, key=lambda key: (key == "all", key.startswith("thinking"), key))
    return {key: (right[key], total[key]) for key in keys}


def show_wrong(chats: list[Chat], messages: list[dict[str, Any]], limit: int) -> None:
    wrong = [(chat, message) for chat, message in zip(chats, messages) if not is_right(chat, message)]
    for chat, message in wrong[:limit]:
        got = {key: value for key, value in message.items() if value and key != "role"}
        click.echo(f"wrong: {chat.id} ({chat.kind}) {chat.question[:200]!r}")
        click.echo(f"   expected {json.dumps(chat.expected, ensure_ascii=False)[:400]}")
        click.echo(f"   answered {json.dumps(got, ensure_ascii=False)[:600]}")


@contextlib.contextmanager
def target(url: str, model: str, device: str, more: Sequence[str] = ()) -> Iterator[str]:
    """The given server, or one that runs as long as the evaluation, with ``more`` options."""
    if url:
        yield url.rstrip("/")
        return
    options = ["--parallel", "2", *(["--model", model] if model else []), *(["--device", device] if device else [])]
    with running_server([*options, *more]) as started:
        yield started


def ask_all(base: str, chats: Sequence[Chat], jobs: int) -> list[dict[str, Any]]:
    """Bodies of the answers, so many asked for at the same time."""
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda chat: ask(base, chat), chats))


@click.command()
@click.option("--url", default="", help="A running server; without it one is started on a free port.")
@click.option("--model", default="", help="GGUF file of the started server (default: the embedded model).")
@click.option("--device", default="", help="--device of the started server.")
@click.option("--jobs", default=2, show_default=True, help="Chats that are asked at the same time.")
@click.option("--bound", default=LLAMA_CPP_RIGHT, show_default=True, help="Fewer right answers exit with status 1.")
@click.option("--drafts", default="", help="--spec-type of a second server, which must answer the same.")
@click.option("--show", default=10, show_default=True, help="How many wrong answers to show.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS, help="Where the figures go as JSON.")
def main(url: str, model: str, device: str, jobs: int, bound: int, drafts: str, show: int, out: Path) -> None:
    """Ask 40 recorded agent chats and count the answers whose tool calls are exactly right.

    The bound is what llama-server reaches on the same file. With --drafts every answer must be the same with them.
    """
    if url and drafts:
        raise click.UsageError("--drafts starts a server of its own; leave out --url")
    chats = load_chats()
    started = time.monotonic()
    with target(url, model, device) as base:
        bodies = ask_all(base, chats, jobs)
    seconds = time.monotonic() - started
    messages = [message_of(body) for body in bodies]
    show_wrong(chats, messages, show)
    rows = count(chats, messages)
    for key, (right, total) in rows.items():
        click.echo(f"{key:24} {right:3} of {total:3}")
    right, total = rows["all"]
    met = right >= bound
    click.echo(f"bound: {bound} of {total} (llama.cpp on the same file): {'met' if met else 'MISSED'}, {seconds:.0f} s")
    if not url and not model:
        record = {"what": "chats with exactly right tool calls", "date": time.strftime("%Y-%m-%d"), "bound": bound,
                  "right": right, "total": total, "by_kind": rows, "seconds": round(seconds)}
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    same = True
    if drafts:
        with target("", model, device, drafting_options(drafts)) as base:
            same = report_drafts(chats, bodies, ask_all(base, chats, jobs))
    sys.exit(0 if met and same else 1)


if __name__ == "__main__":
    main()
