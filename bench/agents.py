"""Load generator: LLM servers side by side, as coding agents use them.

It plays one or several agents against a running server and reports what such users feel: decode
speed of one agent and of several at once, time to the first token of the next request on a long
conversation, prompt processing speed, and how much one agent's long prompt slows another one.

    python -m bench.agents --url http://127.0.0.1:8080 --agents 4 --context 23000 --json result.json

\b
Servers (--api)
  llama        llama-server's own POST /completion and /tokenize. Prompts are token ids,
               so lengths are exact and a follow-up continues exactly the generated tokens.
  completions  POST /v1/completions with text
  chat         POST /v1/chat/completions
  auto         llama if /tokenize answers, else chat
  In the text modes prompt lengths follow from a measured characters-per-token ratio, and
  token counts are those of the server's `usage`.

\b
Scenarios (--scenario, comma-separated, run in the given order)
  single    one agent, fresh short prompt: decode speed
  agents    all agents at once, fresh short prompts: decode speed of each and of all
  prefill   one agent, one fresh long prompt (--prefill tokens): prompt tokens a second
  followup  every agent holds a conversation of --context tokens (built first); then all
            send the next request (--followup new tokens) at the same moment
  solo      one agent alone does the same on its long conversation
  mixed     one agent decodes on its long conversation while another sends a fresh prompt
            of --prefill tokens: decode speed before and during, longest pause
  followup, solo and mixed share the conversations; mixed spoils them, so run it last.

\b
What the numbers mean
  ttft_s        from sending the request to its first generated token, client side
  decode_tok_s  (tokens - 1) / (time of last token - time of first token), one request
  total_tok_s   tokens of all agents in the span in which all of them are decoding,
                divided by that span
  processed     prompt tokens that the server did not take from its prompt cache
  prompt_tok_s  prompt tokens that the server had to process / ttft_s
  Sampling is greedy and end-of-text is ignored where the server knows `ignore_eos`, so
  every request generates exactly --out tokens. Prompts are random English and programming
  words: every fresh prompt differs from its first token on.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import click

from bench.load_client import Server
from bench.load_scenarios import SCENARIOS, Load
from bench.load_table import table


def scenario_list(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
    names = [name for name in value.split(",") if name]
    if unknown := set(names) - set(SCENARIOS):
        raise click.BadParameter(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    return names


@click.command(help=__doc__, context_settings={"max_content_width": 100})
@click.option("--url", default="http://127.0.0.1:8080", show_default=True, help="Base URL of the server.")
@click.option("--api", type=click.Choice(["auto", "llama", "completions", "chat"]), default="auto", show_default=True)
@click.option("--model", help="Model name for OpenAI-style requests (default: the server's first).")
@click.option("--api-key")
@click.option("--agents", default=4, show_default=True)
@click.option("--short", default=200, show_default=True, help="Tokens of a short prompt.")
@click.option("--context", default=23000, show_default=True, help="Tokens of a long conversation.")
@click.option("--followup", default=200, show_default=True, help="New tokens of the next request on it.")
@click.option("--prefill", default=20000, show_default=True, help="Tokens of a fresh long prompt.")
@click.option("--out", default=256, show_default=True, help="Tokens to generate in each timed request.")
@click.option("--prefill-out", default=8, show_default=True, help="Tokens to generate in `prefill`.")
@click.option("--mixed-out", default=4096, show_default=True, help="Limit of the decoding agent in `mixed`.")
@click.option("--mixed-lead", default=1.5, show_default=True, help="Seconds of decoding alone before and after.")
@click.option("--reps", default=2, show_default=True, help="Repetitions of each scenario.")
@click.option("--scenario", default=",".join(SCENARIOS), show_default=True, callback=scenario_list)
@click.option("--warmup/--no-warmup", default=True, show_default=True)
@click.option("--deadline", type=float, help="Unix time after which no scenario is started.")
@click.option("--seed", type=int, help="Prompt seed (default: the clock, so no prompt is cached).")
@click.option("--timeout", default=600.0, show_default=True, help="Socket timeout, s.")
@click.option("--label", default="", help="Free text stored with the result.")
@click.option("--json", "json_out", type=click.Path(path_type=Path), help="File for all measurements.")
def main(url: str, api: str, model: str | None, api_key: str | None, json_out: Path | None, **options: Any) -> None:
    options["seed"] = time.time_ns() & 0xFFFFFFFF if options["seed"] is None else options["seed"]
    args = Namespace(**options)
    try:
        server = Server(url, api, model, api_key, args.timeout)
        load = Load(args, server)
    except (OSError, ValueError, KeyError) as error:
        raise click.ClickException(f"no usable server at {url}: {type(error).__name__}: {error}") from error
    failure = None
    try:
        load.run()
    except (RuntimeError, OSError, ValueError) as error:
        failure = f"{type(error).__name__}: {error}"
        click.echo(f"stopped: {failure}", err=True)
    if json_out is not None:
        record = {"label": args.label, "api": server.api, "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
                  "error": failure, "args": options, "results": load.results}
        json_out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    click.echo(table(load.results, args))
    sys.exit(1 if failure else 0)


if __name__ == "__main__":
    main()
