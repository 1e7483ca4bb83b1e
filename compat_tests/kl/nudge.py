"""The smallest change of a model file: every F32 value moved by one unit in the last place.

    python -m compat_tests.kl.nudge SRC DST

Where all of llama.cpp's modes share their arithmetic bit for bit, they say nothing about its noise. A
change of this size stands for another rounding of the same file and leaves nothing to choose: each
value goes to one of its two neighbours, and the seed is fixed. Quantised and F16 tensors stay.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import click
import numpy as np
from gguf import GGMLQuantizationType, GGUFReader

SEED = 1


def nudge(src: str | Path, dst: str | Path, seed: int = SEED) -> Path:
    """Copy `src` to `dst` with every value of its F32 tensors moved up or down; returns the path of `dst`.

    Raises ValueError when the file has no F32 tensor.
    """
    shutil.copyfile(src, dst)
    random = np.random.default_rng(seed)
    reader = GGUFReader(dst, "r+")
    changed = [tensor for tensor in reader.tensors if tensor.tensor_type == GGMLQuantizationType.F32]
    if not changed:
        raise ValueError(f"{src} has no F32 tensor")
    for tensor in changed:
        towards = np.where(random.random(tensor.data.shape) < 0.5, -np.inf, np.inf).astype(np.float32)
        tensor.data[...] = np.nextafter(tensor.data, towards)
    reader.data.flush()
    return Path(dst)


@click.command(help=__doc__)
@click.argument("src", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("dst", type=click.Path(dir_okay=False, path_type=Path))
def main(src: Path, dst: Path) -> None:
    click.echo(nudge(src, dst))


if __name__ == "__main__":
    main()
