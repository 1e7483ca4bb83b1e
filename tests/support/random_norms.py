"""Norms and biases of a model, made random: one that is forgotten or taken for another then changes the numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyjet.model.reader import Model, TensorInfo


def with_random_norms(model: Model, seed: int = 7) -> Model:
    """The model with every norm's weights drawn from 0.5 to 1.5."""
    rng = np.random.default_rng(seed)

    def drawn(tensor: TensorInfo) -> TensorInfo:
        values = rng.uniform(0.5, 1.5, tensor.shape[0]).astype(np.float32)
        return replace(tensor, data=values.view(np.uint8))

    tensors = {
        name: drawn(tensor) if name.endswith("norm.weight") and len(tensor.shape) == 1 else tensor
        for name, tensor in model.tensors.items()
    }
    return replace(model, tensors=tensors)
