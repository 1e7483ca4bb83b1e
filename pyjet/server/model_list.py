"""The answer of ``/models``: the model and its profiles, in Ollama's and in OpenAI's form."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyjet.server.profiles import Profile
    from pyjet.server.service import Service


def models(service: Service) -> dict[str, Any]:
    """The model first; each profile follows as a model of its own, with its limits in ``meta``."""
    profiles = service.options.profiles
    names = [service.model_id, *(profile.name for profile in profiles)]
    entries = [_model_entry(service), *(_profile_entry(service, profile) for profile in profiles)]
    return {"models": [_ollama_entry(name) for name in names], "object": "list", "data": entries}


def _ollama_entry(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "model": name,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [""],
        "capabilities": ["completion"],
        "parameters": "",
        "details": {
            "parent_model": "",
            "format": "gguf",
            "family": "",
            "families": [""],
            "parameter_size": "",
            "quantization_level": "",
        },
    }


def _model_entry(service: Service) -> dict[str, Any]:
    model, sizes = service.model, service.model.hyperparams
    return {
        "id": service.model_id,
        "aliases": list(service.aliases),
        "tags": list(service.options.tags),
        "object": "model",
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "created": int(time.time()),
        "owned_by": "llamacpp",
        "meta": {
            "vocab_type": service.tokenizer.vocab_type,
            "n_vocab": service.tokenizer.n_vocab,
            "n_ctx": service.n_ctx_slot,
            "n_ctx_train": sizes.n_ctx_train,
            "n_embd": sizes.n_embd,
            "n_params": model.n_params,
            "size": model.tensor_bytes,
            "ftype": model.ftype_name,
        },
    }


def _profile_entry(service: Service, profile: Profile) -> dict[str, Any]:
    entry = _model_entry(service)
    limits = {
        "n_ctx": profile.context(service.n_ctx_slot),
        "max_tokens": profile.max_tokens,
        "priority": profile.priority,
    }
    return {**entry, "id": profile.name, "aliases": [profile.name], "meta": {**entry["meta"], **limits}}
