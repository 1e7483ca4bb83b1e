"""Steps of every kind on the embedded model, few enough for compute-sanitizer: ``python -m bench.short_run``."""

from __future__ import annotations

from dataclasses import replace

import click
import numpy as np

from bench.step_rows import Rows, make_batch
from pyjet.assets import default_model_path
from pyjet.engine.row_arrays import CHOSEN
from pyjet.engine.speculation_settings import DRAFT_BLOCK
from pyjet.model.reader import load_model
from pyjet.native import ROW_ARGMAX, ROW_HIDDEN, ROW_LOGITS, ROW_SAMPLE, EngineConfig, NativeEngine

N_DRAFTS, DRAFT_VOCAB = 2, 1024
ALL = ROW_LOGITS | ROW_ARGMAX | ROW_HIDDEN | ROW_SAMPLE


@click.command(help=__doc__)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cuda", show_default=True)
@click.option("--prompt", default=36, show_default=True, help="Tokens of the longest prompt.")
def main(device: str, prompt: int) -> None:
    for kv in ("f16", "q8_0"):
        model = load_model(default_model_path())
        config = EngineConfig(8, 3, device=device, max_rows=max(prompt, 16), max_spec=2, kv_type_k=kv, kv_type_v=kv)
        with NativeEngine(model, config) as engine:
            steps(engine, prompt)
        with NativeEngine(model, replace(config, max_draft=N_DRAFTS, draft_vocab=DRAFT_VOCAB)) as engine:
            drafting_steps(engine, prompt)
        click.echo(f"{kv} KV: every step ended")


def steps(engine: NativeEngine, prompt: int) -> None:
    """Two prompts, decode rows of both, speculative rows that are kept and dropped, copies, samples, the MTP block."""
    n = engine.n_vocab
    engine.step(make_batch([Rows(0, prompt, 0, 0)], n))
    engine.step(make_batch([Rows(0, 1, prompt, 0, ALL), Rows(1, 9, 0, 4)], n))
    speculative = make_batch([Rows(0, 3, prompt + 1, 0), Rows(1, 1, 9, 4)], n)
    speculative.seqs["n_spec"][0] = 2
    engine.step(speculative)
    engine.state_commit(0, 1)
    engine.state_copy(0, 2)
    engine.pages_copy([0], [3])
    row = make_batch([Rows(0, 2, prompt + 3, 0, ALL)], n)
    hidden = engine.step(row).hidden.copy()
    result = engine.mtp(row, np.ascontiguousarray(hidden, np.float32))
    if (result.argmax < 0).any() or (result.sampled < 0).any():
        raise click.ClickException("a row has no best or no sampled token")


def drafting_steps(engine: NativeEngine, prompt: int) -> None:
    """A prompt with drafts behind it; then they are verified beside another prompt, and more are drawn."""
    n = engine.n_vocab
    blocks = np.array([DRAFT_VOCAB // DRAFT_BLOCK], np.int32)
    batch = make_batch([Rows(0, prompt, 0, 0, 0)], n)
    batch.row_flags[-1] = ROW_ARGMAX
    batch.seqs["n_draft"] = N_DRAFTS
    following = np.append(batch.tokens[1:], CHOSEN).astype(np.int32)
    first = engine.step(replace(batch, row_next=following, draft_blocks=blocks))
    drafts = first.drafts[0, :N_DRAFTS].copy()
    batch = make_batch([Rows(0, 1 + N_DRAFTS, prompt, 0, ROW_SAMPLE), Rows(1, 9, 0, 4, 0)], n)
    batch.tokens[1 : 1 + N_DRAFTS] = drafts
    batch.seqs["n_spec"][0] = batch.seqs["n_verify"][0] = batch.seqs["n_draft"][0] = N_DRAFTS
    batch.seqs["draft_sample"][0] = 0
    following = np.array([*drafts, CHOSEN, *batch.tokens[2 + N_DRAFTS :], 0], np.int32)
    second = engine.step(replace(batch, row_next=following, draft_blocks=blocks))
    if (drafts < 0).any() or (second.drafts[0, :N_DRAFTS] < 0).any():
        raise click.ClickException("a draft is missing")


if __name__ == "__main__":
    main()
