"""llama.cpp's own samplers as the oracle of sampler tests."""

from __future__ import annotations

import ctypes as C
from collections.abc import Sequence

import numpy as np

from cli.llama_cpp import load_library
from pyjet.engine.request import SamplingParams

SEED = 4711  # of the draws of samplers that choose a token themselves


class _Candidate(C.Structure):
    _fields_ = [("id", C.c_int32), ("logit", C.c_float), ("p", C.c_float)]


class _Candidates(C.Structure):
    _fields_ = [
        ("data", C.POINTER(_Candidate)), ("size", C.c_size_t), ("selected", C.c_int64), ("sorted", C.c_bool),
    ]  # fmt: skip


class _Bias(C.Structure):
    _fields_ = [("token", C.c_int32), ("bias", C.c_float)]


_F, _I, _U, _P, _Z = C.c_float, C.c_int32, C.c_uint32, C.c_void_p, C.c_size_t
_INITS: dict[str, list[type]] = {
    "dist": [_U],
    "top_k": [_I],
    "top_p": [_F, _Z],
    "min_p": [_F, _Z],
    "typical": [_F, _Z],
    "temp": [_F],
    "temp_ext": [_F, _F, _F],
    "xtc": [_F, _F, _Z, _U],
    "mirostat": [_I, _U, _F, _F, _I],
    "mirostat_v2": [_U, _F, _F],
    "penalties": [_I, _I, _F, _F, _F],
    "top_n_sigma": [_F],
    "dry": [_P, _F, _F, _I, _I, C.POINTER(C.c_char_p), _Z],
    "adaptive_p": [_F, _F, _U],
    "infill": [_P],
    "logit_bias": [_I, _I, C.POINTER(_Bias)],
}


class LlamaChain:
    """The samplers that llama-server would make for some parameters; use as a context manager.

    ``vocab``: a vocabulary, for DRY with the texts ``breakers``, and for infill.
    Raises LlamaCppError when the wheel is missing.
    """

    def __init__(
        self, params: SamplingParams, n_vocab: int, *, vocab: int | None = None, breakers: Sequence[str] = ()
    ) -> None:
        self._lib = load_library()
        for name, arguments in _INITS.items():
            function = getattr(self._lib, f"llama_sampler_init_{name}")
            function.restype, function.argtypes = _P, arguments
        self._lib.llama_sampler_apply.argtypes = [_P, C.POINTER(_Candidates)]
        self._lib.llama_sampler_accept.argtypes = [_P, _I]
        self._lib.llama_sampler_free.argtypes = [_P]
        self._n_vocab, self._vocab, self._breakers = n_vocab, vocab, [text.encode() for text in breakers]
        self._samplers = self._make(params)

    def __enter__(self) -> LlamaChain:
        return self

    def __exit__(self, *error: object) -> None:
        for sampler in self._samplers:
            self._lib.llama_sampler_free(sampler)

    def accept(self, *tokens: int) -> None:
        for token in tokens:
            for sampler in self._samplers:
                self._lib.llama_sampler_accept(sampler, token)

    def sample(self, logits: np.ndarray) -> tuple[int, dict[int, float]]:
        """The token that was drawn, and the probabilities of all that could have been."""
        data = (_Candidate * len(logits))()
        rows = np.frombuffer(data, [("id", np.int32), ("logit", np.float32), ("p", np.float32)])
        rows["id"], rows["logit"] = np.arange(len(logits)), logits
        candidates = _Candidates(data, len(logits), -1, False)
        for sampler in self._samplers:
            self._lib.llama_sampler_apply(sampler, C.byref(candidates))
        left = np.ctypeslib.as_array(candidates.data, (candidates.size,))
        probs = {token: p for token, p in zip(left["id"].tolist(), left["p"].tolist()) if p > 0}
        return int(left["id"][candidates.selected]), probs

    def _make(self, params: SamplingParams) -> list[int]:
        biases = (_Bias * len(params.logit_bias))(*params.logit_bias)
        chain = [self._init("logit_bias", self._n_vocab, len(biases), biases)] if biases else []
        tau, eta = params.mirostat_tau, params.mirostat_eta
        if params.mirostat == 1:
            first = self._init("mirostat", self._n_vocab, SEED, tau, eta, 100)
            return [*chain, self._init("temp", params.temperature), first]
        if params.mirostat == 2:
            return [*chain, self._init("temp", params.temperature), self._init("mirostat_v2", SEED, tau, eta)]
        chain += [self._named(name, params) for name in params.samplers if name != "adaptive_p"]
        if "adaptive_p" in params.samplers:
            return [*chain, self._init("adaptive_p", params.adaptive_target, params.adaptive_decay, SEED)]
        return [*chain, self._init("dist", SEED)]

    def _named(self, name: str, p: SamplingParams) -> int:
        texts = (C.c_char_p * max(1, len(self._breakers)))(*self._breakers)
        arguments: dict[str, tuple[str, tuple]] = {
            "penalties": ("penalties", (self._n_vocab, p.repeat_last_n, p.repeat_penalty, p.frequency_penalty,
                                        p.presence_penalty)),
            "dry": ("dry", (self._vocab, p.dry_multiplier, p.dry_base, p.dry_allowed_length, p.dry_penalty_last_n,
                            texts, len(self._breakers))),
            "top_n_sigma": ("top_n_sigma", (p.top_n_sigma,)),
            "top_k": ("top_k", (p.top_k,)),
            "typ_p": ("typical", (p.typical_p, p.min_keep)),
            "top_p": ("top_p", (p.top_p, p.min_keep)),
            "min_p": ("min_p", (p.min_p, p.min_keep)),
            "xtc": ("xtc", (p.xtc_probability, p.xtc_threshold, p.min_keep, SEED)),
            "infill": ("infill", (self._vocab,)),
            "temperature": ("temp_ext", (p.temperature, p.dynatemp_range, p.dynatemp_exponent)),
        }  # fmt: skip
        function, values = arguments[name]
        return self._init(function, *values)

    def _init(self, name: str, *values: object) -> int:
        return int(getattr(self._lib, f"llama_sampler_init_{name}")(*values))
