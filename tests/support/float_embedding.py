"""Embeddings as floats, so that what a test compares does not hang on roundings of int8."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyjet.model.reader import Model


def with_float_embedding(model: Model) -> Model:
    """Normal F32 embeddings: products of few integers would lie exactly between two int8 values all the time."""
    old = model.tensors["token_embd.weight"]
    values = np.random.default_rng(3).standard_normal(old.shape[::-1]).astype(np.float32)
    new = replace(old, type=0, type_name="F32", data=values.view(np.uint8).reshape(-1), n_bytes=values.nbytes)
    return replace(model, tensors={**model.tensors, old.name: new})
