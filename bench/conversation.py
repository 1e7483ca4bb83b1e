"""How much of their prompts a server reads twice for four agents at work: ``python -m bench.conversation --url URL``.

Four agents share a system prompt and tools and begin at the same moment. Each makes ten requests to
/v1/chat/completions and appends what the model really answers: when it calls tools, scripted tool answers follow,
otherwise a user's message; every third turn a user speaks, so that the template drops earlier thoughts. Agent 2 asks
turn 5 once more with another message, agent 3 compacts its history at turn 7.

Counted are the prompt tokens that the server processed and those that are new: the ones after the longest beginning
that the prompt has in common with anything the server processed before, another agent's prompts and all answers
included. Tokens behind a change of the text are new again; what simultaneous prompts share is new once. The server
may process 1.1 tokens for each new one; otherwise, or when it counts prompts otherwise, the exit status is 1.

Without --url a server with the embedded model runs for the measurement. It works with every server that knows
/apply-template, /tokenize and, in chats, `verbose` and `return_tokens`.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from bench.chat_client import ServerError, ask, prompt_tokens
from bench.conversation_history import History, Step, steps
from bench.conversation_outcome import Turn, table, totals
from bench.conversation_text import tools
from bench.server import running_server
from bench.token_ledger import TokenLedger

CONTEXT = 16384  # of each agent, of the server that is started here


class Agent:
    """Plays one agent's script."""

    def __init__(self, url: str, number: int, seed: int, max_tokens: int, ledger: TokenLedger) -> None:
        self._url = url
        self._number = number
        self._history = History(seed, number)
        self._settings = {"tools": tools(seed), "temperature": 0, "max_tokens": max_tokens}
        self._ledger = ledger

    def play(self, turns: int, start: threading.Barrier) -> list[Turn]:
        """All requests, one after the other; the first at the same moment as the other agents'."""
        found = []
        for step in steps(self._number, turns):
            self._history.advance(step)
            chat = {"messages": self._history.messages, **self._settings}
            prompt = prompt_tokens(self._url, chat)
            if not found:
                start.wait()
            found.append(self._request(step, chat, prompt))
        return found

    def _request(self, step: Step, chat: dict[str, Any], prompt: list[int]) -> Turn:
        new = self._ledger.add_prompt(prompt)
        answer = ask(self._url, chat)
        self._ledger.add_answer(prompt, answer.tokens)
        self._history.add_answer(answer.message)
        n_calls = len(answer.message.get("tool_calls") or [])
        return Turn(self._number, step.name, step.kind, len(prompt), new, answer.cached, answer.processed,
                    len(answer.tokens), n_calls)  # fmt: skip


def play(url: str, *, agents: int = 4, turns: int = 10, max_tokens: int = 60, seed: int = 1) -> list[Turn]:
    """All agents at once. A server must not have seen the seed before. ServerError when a request fails."""
    ledger = TokenLedger()
    start = threading.Barrier(agents)

    def run(number: int) -> list[Turn]:
        try:
            return Agent(url, number, seed, max_tokens, ledger).play(turns, start)
        except Exception:
            start.abort()  # the others must not wait for this one
            raise

    with ThreadPoolExecutor(agents) as pool:
        futures = [pool.submit(run, number) for number in range(1, agents + 1)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise next((e for e in errors if not isinstance(e, threading.BrokenBarrierError)), errors[0])
    return [turn for future in futures for turn in future.result()]


@contextlib.contextmanager
def target(url: str, agents: int) -> Iterator[str]:
    """The given server, or one that runs as long as the measurement."""
    if url:
        yield url.rstrip("/")
        return
    with running_server(["--parallel", str(agents), "-c", str(CONTEXT * agents)]) as started:
        yield started


@click.command(help=__doc__)
@click.option("--url", default="", help="A running server.")
@click.option("--agents", default=4, show_default=True)
@click.option("--turns", default=10, show_default=True)
@click.option("--max-tokens", default=60, show_default=True, help="Tokens of an answer at most.")
@click.option("--seed", type=int, help="Of the script's words (default: the clock, so that no server knows them).")
@click.option("--json", "json_out", type=click.Path(path_type=Path), help="File for totals and requests.")
def main(url: str, agents: int, turns: int, max_tokens: int, seed: int | None, json_out: Path | None) -> None:
    seed = time.time_ns() & 0xFFFFFFFF if seed is None else seed
    started = time.monotonic()
    try:
        with target(url, agents) as base:
            found = play(base, agents=agents, turns=turns, max_tokens=max_tokens, seed=seed)
    except (ServerError, RuntimeError) as error:
        raise click.ClickException(str(error)) from error
    figures = {**totals(found), "seed": seed, "seconds": round(time.monotonic() - started, 1)}
    click.echo(table(found) + "\n")
    for key, value in figures.items():
        click.echo(f"{key:20} {value}")
    if json_out is not None:
        json_out.write_text(json.dumps({**figures, "turns": [vars(t) for t in found]}, indent=1) + "\n", "utf-8")
    sys.exit(0 if figures["is_kept"] and not figures["counted_otherwise"] else 1)


if __name__ == "__main__":
    main()
