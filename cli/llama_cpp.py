"""llama.cpp's C API through the xllamacpp wheel: the yardstick for our numbers and our speed.

The wheel's extension module exports llama.cpp's public functions. The structures below mirror the
parameter structs of exactly one build, so the wheel's version is fixed and `load_library` compares
some defaults before anything is called.
"""

from __future__ import annotations

import ctypes as C
import importlib.metadata
import importlib.util
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

XLLAMACPP_VERSION = "2026.10.11549"
KV_TYPES = {"f16": 1, "q8_0": 8}  # ggml type numbers
POOLINGS = {"none": 0, "mean": 1, "cls": 2, "last": 3}  # llama_pooling_type

Tokens = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]
Rows = npt.NDArray[np.float32]


class LlamaCppError(RuntimeError):
    """llama.cpp is not installed, has another version, or a call of it failed."""


def _same(kind: type, names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


class _ModelParams(C.Structure):
    _fields_ = [
        *_same(C.c_void_p, "devices tensor_buft_overrides"),
        *_same(C.c_int32, "n_gpu_layers split_mode load_mode lazy_mode main_gpu"),
        *_same(C.c_void_p, "tensor_split progress_callback progress_user_data kv_overrides"),
        *_same(C.c_bool, "vocab_only check_tensors use_extra_bufts no_host no_alloc load_mtp"),
    ]


class _ContextParams(C.Structure):
    _fields_ = [
        *_same(C.c_uint32, "n_ctx n_batch n_ubatch n_seq_max n_rs_seq n_outputs_max n_outputs_max_per_seq"),
        *_same(C.c_int32, "n_threads n_threads_batch"),
        *_same(C.c_int32, "ctx_type rope_scaling_type pooling_type attention_type flash_attn_type"),
        *_same(C.c_float, "rope_freq_base rope_freq_scale yarn_ext_factor yarn_attn_factor yarn_beta_fast"),
        ("yarn_beta_slow", C.c_float),
        ("yarn_orig_ctx", C.c_uint32),
        ("defrag_thold", C.c_float),
        *_same(C.c_void_p, "cb_eval cb_eval_user_data"),
        *_same(C.c_int32, "type_k type_v"),
        *_same(C.c_void_p, "abort_callback abort_callback_data"),
        *_same(C.c_bool, "embeddings offload_kqv no_perf op_offload swa_full kv_unified"),
        ("samplers", C.c_void_p),
        ("n_samplers", C.c_size_t),
        ("ctx_other", C.c_void_p),
    ]


class _Batch(C.Structure):
    _fields_ = [
        ("n_tokens", C.c_int32),
        ("token", C.POINTER(C.c_int32)),
        ("embd", C.POINTER(C.c_float)),
        ("pos", C.POINTER(C.c_int32)),
        ("n_seq_id", C.POINTER(C.c_int32)),
        ("seq_id", C.POINTER(C.POINTER(C.c_int32))),
        ("logits", C.POINTER(C.c_int8)),
    ]


_LogCallback = C.CFUNCTYPE(None, C.c_int, C.c_char_p, C.c_void_p)
_silent = _LogCallback(lambda level, text, user: None)  # kept alive here: llama.cpp stores the pointer

_FUNCTIONS: list[tuple[str, type | None, list[type]]] = [
    ("llama_log_set", None, [_LogCallback, C.c_void_p]),
    ("llama_model_default_params", _ModelParams, []),
    ("llama_context_default_params", _ContextParams, []),
    ("llama_model_load_from_file", C.c_void_p, [C.c_char_p, _ModelParams]),
    ("llama_init_from_model", C.c_void_p, [C.c_void_p, _ContextParams]),
    ("llama_model_get_vocab", C.c_void_p, [C.c_void_p]),
    ("llama_vocab_n_tokens", C.c_int32, [C.c_void_p]),
    (
        "llama_tokenize",
        C.c_int32,
        [C.c_void_p, C.c_char_p, C.c_int32, C.POINTER(C.c_int32), C.c_int32, C.c_bool, C.c_bool],
    ),
    ("llama_batch_init", _Batch, [C.c_int32, C.c_int32, C.c_int32]),
    ("llama_batch_free", None, [_Batch]),
    ("llama_decode", C.c_int32, [C.c_void_p, _Batch]),
    ("llama_get_logits_ith", C.POINTER(C.c_float), [C.c_void_p, C.c_int32]),
    ("llama_set_embeddings", None, [C.c_void_p, C.c_bool]),
    ("llama_model_n_embd", C.c_int32, [C.c_void_p]),
    ("llama_get_embeddings_ith", C.POINTER(C.c_float), [C.c_void_p, C.c_int32]),
    ("llama_get_embeddings_seq", C.POINTER(C.c_float), [C.c_void_p, C.c_int32]),
    ("llama_free", None, [C.c_void_p]),
    ("llama_model_free", None, [C.c_void_p]),
]


def load_library() -> C.CDLL:
    """llama.cpp's functions with their types.

    Raises LlamaCppError when the wheel is missing or is not the version whose structures are known.
    """
    install = f"pip install xllamacpp=={XLLAMACPP_VERSION}"
    spec = importlib.util.find_spec("xllamacpp")
    if spec is None or spec.origin is None:
        raise LlamaCppError(f"llama.cpp for the comparison is not installed: {install}")
    version = importlib.metadata.version("xllamacpp")
    if version != XLLAMACPP_VERSION:
        raise LlamaCppError(f"xllamacpp {version} is installed, but its parameter layout is not known: {install}")
    extension = next(iter(sorted(Path(spec.origin).parent.glob("xllamacpp*.so"))), None)
    if extension is None:
        raise LlamaCppError(f"xllamacpp has no extension module for this Python: {install}")
    library = C.CDLL(str(extension))
    for name, result, arguments in _FUNCTIONS:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    defaults = library.llama_context_default_params()
    if (defaults.n_ctx, defaults.n_batch, defaults.n_ubatch, defaults.type_k) != (512, 2048, 512, 1):
        raise LlamaCppError(f"this build of xllamacpp has another parameter layout: {install}")
    library.llama_log_set(_silent, None)
    return library


class LlamaModel:
    """A model file loaded by llama.cpp. Use as a context manager; contexts must be closed first.

    repack: let it rearrange weights for this processor, which is its default and selects other kernels.
    """

    def __init__(self, path: str | Path, *, repack: bool = True):
        self.library = load_library()
        params = self.library.llama_model_default_params()
        params.use_extra_bufts = repack
        self.handle = self.library.llama_model_load_from_file(str(path).encode(), params)
        if not self.handle:
            raise LlamaCppError(f"llama.cpp cannot load {path}")
        self._vocab = self.library.llama_model_get_vocab(self.handle)
        self.n_vocab: int = self.library.llama_vocab_n_tokens(self._vocab)

    def tokenize(self, text: str) -> Tokens:
        """Token ids of `text`; special tokens in it are recognised, none are added but the model's own BOS."""
        data = text.encode()
        buffer = (C.c_int32 * (len(data) + 16))()
        count = self.library.llama_tokenize(self._vocab, data, len(data), buffer, len(buffer), True, True)
        return np.ctypeslib.as_array(buffer)[:count].copy()

    def close(self) -> None:
        if self.handle:
            self.library.llama_model_free(self.handle)
            self.handle = None

    def __enter__(self) -> LlamaModel:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class LlamaContext:
    """One sequence of a model, from position 0 on.

    n_ctx: tokens it can hold. kv_type: "f16" or "q8_0", for keys and values. n_threads: CPU workers.
    flash: compute attention without storing the scores; None: where it can, its default. q8_0 needs it.
    pooling: for `embed` instead of `decode`, a key of POOLINGS.
    """

    def __init__(
        self,
        model: LlamaModel,
        n_ctx: int,
        kv_type: str = "f16",
        n_threads: int = 0,
        *,
        flash: bool | None = None,
        pooling: str | None = None,
    ):
        self._model, self._library = model, model.library
        params = self._library.llama_context_default_params()
        params.n_ctx = params.n_batch = max(n_ctx + 8, 256)
        params.type_k = params.type_v = KV_TYPES[kv_type]
        if flash is not None:
            params.flash_attn_type = int(flash)
        if pooling is not None:
            params.pooling_type = POOLINGS[pooling]
            params.n_ubatch = params.n_batch  # a pooled text is one micro-batch
        if n_threads > 0:
            params.n_threads = params.n_threads_batch = n_threads
        self._handle = self._library.llama_init_from_model(model.handle, params)
        if not self._handle:
            raise LlamaCppError(f"llama.cpp cannot create a context of {n_ctx} tokens with {kv_type} KV")
        self._library.llama_set_embeddings(self._handle, pooling is not None)
        self.position = 0
        self._is_pooled = pooling not in (None, "none")

    def decode(self, tokens: Tokens, *, all_logits: bool) -> Logits:
        """Append tokens in one call. Returns the logits [n, n_vocab] of all of them or of the last one."""
        count = len(tokens)
        self._run(tokens, all_outputs=all_logits)
        wanted = range(count) if all_logits else [count - 1]
        return np.stack([self._row(i) for i in wanted])

    def embed(self, tokens: Tokens) -> Rows:
        """The embedding of a text, in one call: [1, n_embd], or [n, n_embd] with pooling "none"."""
        self._run(tokens, all_outputs=True)
        if self._is_pooled:
            pointers = [self._library.llama_get_embeddings_seq(self._handle, 0)]
        else:
            pointers = [self._library.llama_get_embeddings_ith(self._handle, i) for i in range(len(tokens))]
        shape = (self._library.llama_model_n_embd(self._model.handle),)
        return np.stack([np.ctypeslib.as_array(pointer, shape=shape).copy() for pointer in pointers])

    def _run(self, tokens: Tokens, *, all_outputs: bool) -> None:
        count = len(tokens)
        batch = self._library.llama_batch_init(count, 0, 1)
        try:
            batch.n_tokens = count
            for i, token in enumerate(tokens):
                batch.token[i], batch.pos[i] = int(token), self.position + i
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
                batch.logits[i] = int(all_outputs or i == count - 1)
            status = self._library.llama_decode(self._handle, batch)
        finally:
            self._library.llama_batch_free(batch)
        if status != 0:
            raise LlamaCppError(f"llama_decode failed with status {status}")
        self.position += count

    def _row(self, index: int) -> Logits:
        pointer = self._library.llama_get_logits_ith(self._handle, index)
        return np.ctypeslib.as_array(pointer, shape=(self._model.n_vocab,)).copy()

    def close(self) -> None:
        if self._handle:
            self._library.llama_free(self._handle)
            self._handle = None

    def __enter__(self) -> LlamaContext:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
