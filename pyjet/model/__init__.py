"""GGUF to tables: metadata, hyperparameters, tensors, tokenizer. No arithmetic."""

from __future__ import annotations

from pyjet.model.detokenizer import Detokenizer
from pyjet.model.errors import ModelError
from pyjet.model.hyperparams import Hyperparams
from pyjet.model.reader import Model, TensorInfo, load_model
from pyjet.model.tokenizer import Tokenizer

__all__ = ["Detokenizer", "Hyperparams", "Model", "ModelError", "TensorInfo", "Tokenizer", "load_model"]
