"""pyjet run: one prompt, answered in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from pyjet.assets import default_model_path
from pyjet.chat.template import ChatTemplate, TemplateError
from pyjet.engine.client import EngineClient, RequestStream
from pyjet.engine.local import LocalEngine
from pyjet.engine.request import (
    RANDOM_SEED,
    FailedEvent,
    FinishedEvent,
    GenerationRequest,
    SamplingParams,
    Timings,
    TokenEvent,
)
from pyjet.engine.settings import EngineSettings
from pyjet.model.detokenizer import Detokenizer
from pyjet.model.reader import Model, ModelError, load_model
from pyjet.model.tokenizer import Tokenizer
from pyjet.native import NativeError
from pyjet.native.config import Device, KvType


@click.command()
@click.argument("prompt")
@click.option("-m", "--model", type=click.Path(path_type=Path), help="GGUF file; default: the embedded model.")
@click.option("-s", "--system", default="", help="System message.")
@click.option("--raw", is_flag=True, help="Continue the prompt as it is, without the chat template.")
@click.option("--think/--no-think", default=False, show_default=True, help="Let the model reason before it answers.")
@click.option("-n", "--max-tokens", default=512, show_default=True, help="Tokens to generate at most; -1: no limit.")
@click.option("-c", "--ctx-size", default=8192, show_default=True, help="Context in tokens.")
@click.option("--temp", default=0.8, show_default=True, help="Temperature; 0 always takes the best token.")
@click.option("--seed", default=-1, show_default=True, help="Same seed, same text; -1: a random one.")
@click.option("-t", "--threads", default=0, show_default=True, help="CPU workers; 0: all.")
@click.option("--kv", type=click.Choice(["f16", "q8_0"]), default="f16", show_default=True, help="KV cache type.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
def run(prompt: str, model: Path | None, system: str, raw: bool, think: bool, max_tokens: int, ctx_size: int,
        temp: float, seed: int, threads: int, kv: str, device: str) -> None:
    """Answer PROMPT and print the text while it is generated ("-" reads the prompt from standard input)."""
    text = sys.stdin.read() if prompt == "-" else prompt
    path = model or default_model_path()
    settings = EngineSettings(
        model_path=str(path),
        n_slots=1,
        n_ctx_slot=ctx_size,
        n_ctx_total=ctx_size,
        device=cast(Device, device),
        n_threads=threads,
        kv_type_k=cast(KvType, kv),
        kv_type_v=cast(KvType, kv),
        calibrate=False,
    )
    try:
        loaded = load_model(path)
        tokenizer = Tokenizer.from_metadata(loaded.metadata)
        text = text if raw else render(loaded, tokenizer, text, system, think)
        request = GenerationRequest(
            id="run",
            prompt=tuple(tokenizer.encode(text, add_special=True)),
            sampling=SamplingParams(temperature=temp, seed=RANDOM_SEED if seed < 0 else seed),
            max_tokens=max_tokens,
            stop_ids=tokenizer.eog_ids,
        )
        with open_engine(settings) as engine:
            timings = answer(engine, request, Detokenizer(tokenizer))
    except (ModelError, NativeError, TemplateError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if sys.stderr.isatty():
        click.echo(click.style(describe(timings), dim=True), err=True)


def render(model: Model, tokenizer: Tokenizer, prompt: str, system: str, think: bool) -> str:
    """The prompt as one turn of a chat."""
    source = model.metadata.get("tokenizer.chat_template")
    if not source:
        raise click.ClickException(f"{model.path} has no chat template; use --raw")
    marks = [tokenizer.token_text(i) if i is not None else "" for i in (tokenizer.bos_id, tokenizer.eos_id)]
    template = ChatTemplate(source, bos_token=marks[0], eos_token=marks[1])
    messages = [{"role": "system", "content": system}] if system else []
    return template.render([*messages, {"role": "user", "content": prompt}], enable_thinking=think)


@contextmanager
def open_engine(settings: EngineSettings) -> Iterator[LocalEngine]:
    """The engine in this process; a bar on the terminal while weights are packed."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), console=console, disable=not console.is_terminal, transient=True
    ) as bar:
        task = bar.add_task("loading", total=None)

        def report(stage: str, done: int, total: int) -> None:
            bar.update(task, description=stage, completed=done, total=total)

        engine = LocalEngine.load(settings, report)
    with engine:
        yield engine


def answer(engine: EngineClient, request: GenerationRequest, text: Detokenizer) -> Timings:
    """Print the answer as it comes. Ctrl-C ends it; what was generated stays on the screen."""
    stream = engine.submit(request)
    try:
        timings = print_tokens(stream, request, text)
    except KeyboardInterrupt:
        engine.cancel(request.id)
        timings = print_tokens(stream, request, text)
    click.echo(text.finish())
    return timings


def print_tokens(stream: RequestStream, request: GenerationRequest, text: Detokenizer) -> Timings:
    for event in stream:
        if isinstance(event, TokenEvent) and event.token not in request.stop_ids:
            click.echo(text.push(event.token), nl=False)
        elif isinstance(event, FailedEvent):
            raise click.ClickException(event.message)
        elif isinstance(event, FinishedEvent):
            return event.timings
    return Timings()


def describe(timings: Timings) -> str:
    prompt = f"prompt {timings.prompt_n} tokens, {rate(timings.prompt_n, timings.prompt_ms)}"
    return f"{prompt}; answer {timings.predicted_n} tokens, {rate(timings.predicted_n - 1, timings.predicted_ms)}"


def rate(tokens: int, milliseconds: float) -> str:
    return f"{tokens / milliseconds * 1000:.1f} tok/s" if tokens > 0 and milliseconds > 0 else "- tok/s"
