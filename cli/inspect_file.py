"""pyjet inspect: what is in a GGUF file and what fits beside it."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from pyjet.model.reader import Model, ModelError, load_model

from .memory import GIB, Footprint, footprint, human

MEMORY_GIB = (8, 12, 16, 24, 32, 48, 80)
LENGTHS = (8192, 32768, 65536, 131072)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--memory", "budgets", type=float, multiple=True, help="GiB to fill; repeat for more than one column.")
@click.option("--parallel", default=4, show_default=True, help="Sequences that have a recurrent state.")
@click.option("--tensors", is_flag=True, help="List every tensor.")
def inspect(file: Path, budgets: tuple[float, ...], parallel: int, tensors: bool) -> None:
    """Show architecture, sizes and types of a GGUF FILE and what fits in memory.

    Memory is weights, one recurrent state per sequence and the KV pool that all sequences share; the
    working memory of a step (some hundred MiB for a large model) comes on top.
    """
    try:
        model = load_model(file)
    except (ModelError, OSError) as error:
        raise click.ClickException(str(error)) from error
    console = Console(highlight=False)
    need = footprint(model)
    for table in (
        overview(model),
        type_table(model),
        length_table(need, parallel),
        fit_table(need, parallel, budgets or MEMORY_GIB),
    ):
        console.print(table)
        console.print()
    if tensors:
        console.print(tensor_table(model))


def overview(model: Model) -> Table:
    hp = model.hyperparams
    attention = sum(hp.block_is_attention)
    gdn_blocks = f", {hp.n_block - attention} Gated DeltaNet" if hp.has_state else ""
    gdn_heads = f"{hp.n_gdn_head_v} value and {hp.n_gdn_head_k} key heads of {hp.gdn_dim}" if hp.has_state else ""
    table = Table(show_header=False, box=None)
    for name, value in (
        ("file", model.path),
        ("name", model.name),
        ("architecture", hp.arch),
        ("size", f"{model.n_params / 1e6:,.1f} M parameters, {human(model.file_bytes)}, {model.ftype_name}"),
        ("blocks", f"{hp.n_block}: {attention} full attention{gdn_blocks}"),
        ("MTP blocks", str(hp.n_nextn)),
        ("width", f"{hp.n_embd}, feed-forward {hp.n_ff}"),
        ("attention", f"{hp.n_head} query and {hp.n_head_kv} KV heads of {hp.head_dim}, rope on {hp.rope_dim}"),
        ("Gated DeltaNet", gdn_heads),
        ("vocabulary", f"{hp.n_vocab:,}"),
        ("context", f"{hp.n_ctx_train:,} tokens in training"),
        ("chat template", "yes" if "tokenizer.chat_template" in model.metadata else "no"),
    ):
        if value:
            table.add_row(name, value)
    return table


def type_table(model: Model) -> Table:
    """Tensors and bytes of each weight type."""
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for tensor in model.tensors.values():
        counts[tensor.type_name] = counts.get(tensor.type_name, 0) + 1
        sizes[tensor.type_name] = sizes.get(tensor.type_name, 0) + tensor.n_bytes
    table = _table("weight type", "tensors", "size")
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        table.add_row(name, str(counts[name]), human(sizes[name]))
    return table


def length_table(need: Footprint, parallel: int) -> Table:
    """Memory for some pool lengths."""
    table = _table(f"memory with {parallel} sequences", "f16 KV", "q8_0 KV")
    table.add_row("weights", *[human(need.weights)] * 2)
    if need.state_per_slot:
        table.add_row("recurrent states", *[human(parallel * need.state_per_slot)] * 2)
    table.add_row("KV of one token", *(human(need.kv_per_token[kv]) for kv in ("f16", "q8_0")))
    for tokens in LENGTHS:
        totals = (human(need.total(tokens, parallel, kv)) for kv in ("f16", "q8_0"))
        table.add_row(f"in total with {tokens:,} tokens", *totals)
    return table


def fit_table(need: Footprint, parallel: int, budgets: tuple[float, ...]) -> Table:
    """Pool tokens that fit into each amount of memory."""
    table = _table(f"fits beside {parallel} sequences", "f16 KV tokens", "q8_0 KV tokens")
    for gib in budgets:
        cells = (need.tokens_that_fit(int(gib * GIB), parallel, kv) for kv in ("f16", "q8_0"))
        table.add_row(f"{gib:g} GiB", *(f"{cell:,}" if cell else "no" for cell in cells))
    return table


def tensor_table(model: Model) -> Table:
    table = _table("tensor", "shape", "type", "size")
    for tensor in model.tensors.values():
        shape = " x ".join(map(str, tensor.shape))
        table.add_row(tensor.name, shape, tensor.type_name, human(tensor.n_bytes))
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
