"""How far a device's logits are from the CPU's on four blocks of the 27B's width: ``python -m bench.width_error``.

The weights are random, so nothing damps what rounding adds; errors are relative to the largest logit of a row. What
they can be is shown by the CPU against itself: with f16 instead of q8_0 KV, and with another instruction set, whose
float sums run in another order. Activations are rounded to int8 between matrices, and a sum that differs in its last
bit moves some of them by one step; that, not the arithmetic of one product, is what all three measure.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np

from bench import record
from bench.make_synthetic_gguf import PRESETS, write_synthetic
from bench.step_rows import PAGE_TOKENS, Rows, make_batch, pages_for
from pyjet.model.reader import Model, load_model
from pyjet.native import ROW_LOGITS, EngineConfig, NativeEngine


def logits(model: Model, n_tokens: int, **config: Any) -> tuple[np.ndarray, str]:
    """Logits [n_tokens, n_vocab] of random tokens in one chunk, and the device's name."""
    sizes: dict[str, Any] = {"max_rows": n_tokens, "page_tokens": PAGE_TOKENS}
    with NativeEngine(model, EngineConfig(pages_for(n_tokens), 1, **sizes, **config)) as engine:
        batch = make_batch([Rows(0, n_tokens, 0, 0, ROW_LOGITS)], engine.n_vocab)
        return engine.step(batch).logits.copy(), engine.info().device_name


def relative_errors(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Largest difference of each row over the row's largest logit of ``b``."""
    return np.abs(a - b).max(axis=1) / np.abs(b).max(axis=1)


def measure(model: Model, device: str, n_tokens: int) -> tuple[dict[str, Any], str]:
    """Largest and median error of the device and, beside it, of the CPU against itself; the device's name."""
    q8: dict[str, Any] = {"kv_type_k": "q8_0", "kv_type_v": "q8_0"}
    reference, _ = logits(model, n_tokens, device="cpu", **q8)
    tested, name = logits(model, n_tokens, device=device, **q8)
    others = {
        "": tested,
        "cpu_portable_": logits(model, n_tokens, device="cpu", isa="portable", **q8)[0],
        "cpu_f16_kv_": logits(model, n_tokens, device="cpu", kv_type_k="f16", kv_type_v="f16")[0],
    }
    figures: dict[str, Any] = {"width_error_tokens": n_tokens}
    for prefix, other in others.items():
        errors = relative_errors(other, reference)
        figures[f"width_error_{prefix}first_row"] = float(f"{errors[0]:.3g}")
        figures[f"width_error_{prefix}median"] = float(f"{np.median(errors):.3g}")
        figures[f"width_error_{prefix}max"] = float(f"{errors.max():.3g}")
    return figures, name


@click.command(help=__doc__)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cuda", show_default=True)
@click.option("--preset", type=click.Choice(list(PRESETS)), default="27b-width", show_default=True)
@click.option("--tokens", default=48, show_default=True)
@click.option("--folder", type=click.Path(exists=True, path_type=Path), help="Where the model is written meanwhile.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file to add the figures to.")
def main(device: str, preset: str, tokens: int, folder: Path | None, out: Path | None) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / f"{preset}.gguf"
        write_synthetic(path, PRESETS[preset])
        model = load_model(path)
        figures, name = measure(model, device, tokens)
        if out:
            record.update(out, record.identity(model, name), figures)
    record.show(figures)


if __name__ == "__main__":
    main()
