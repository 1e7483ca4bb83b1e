"""llama.cpp's own tokenizer as the oracle of tokenizer tests."""

from __future__ import annotations

import ctypes as C
from pathlib import Path
from types import TracebackType

from cli.llama_cpp import LlamaCppError, load_library


class LlamaVocab:
    """A GGUF file's vocabulary as llama.cpp sees it; use as a context manager."""

    def __init__(self, path: str | Path) -> None:
        """Raises LlamaCppError when the wheel is missing or llama.cpp does not load the file."""
        self._lib = load_library()
        for name, restype, argtypes in [
            ("llama_vocab_is_eog", C.c_bool, [C.c_void_p, C.c_int32]),
            ("llama_vocab_bos", C.c_int32, [C.c_void_p]),
            ("llama_vocab_eos", C.c_int32, [C.c_void_p]),
            ("llama_token_to_piece", C.c_int32, [*[C.c_void_p, C.c_int32, C.c_char_p], *[C.c_int32] * 2, C.c_bool]),
        ]:
            function = getattr(self._lib, name)
            function.restype, function.argtypes = restype, argtypes
        params = self._lib.llama_model_default_params()
        params.vocab_only = True
        self._model = self._lib.llama_model_load_from_file(str(path).encode(), params)
        if not self._model:
            raise LlamaCppError(f"llama.cpp cannot load {path}")
        self.handle = self._lib.llama_model_get_vocab(self._model)
        self.n_tokens = self._lib.llama_vocab_n_tokens(self.handle)
        self.bos_id = self._lib.llama_vocab_bos(self.handle)
        self.eos_id = self._lib.llama_vocab_eos(self.handle)

    def __enter__(self) -> LlamaVocab:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lib.llama_model_free(self._model)

    def encode(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> list[int]:
        raw = text.encode("utf-8")
        buffer = (C.c_int32 * (len(raw) + 8))()
        count = self._lib.llama_tokenize(self.handle, raw, len(raw), buffer, len(buffer), add_special, parse_special)
        return list(buffer[:count])

    def token_bytes(self, index: int, *, special: bool = True) -> bytes:
        buffer = C.create_string_buffer(4096)
        count = self._lib.llama_token_to_piece(self.handle, index, buffer, len(buffer), 0, special)
        return buffer.raw[:count]

    def is_eog(self, index: int) -> bool:
        return bool(self._lib.llama_vocab_is_eog(self.handle, index))
