"""Which tokens of a prompt are new to a server: those after the longest beginning that it has processed before."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyjet.engine.same_prefix import n_equal

Tokens = NDArray[np.int64]


class TokenLedger:
    """Every token sequence that one server has processed: prompts, and prompts with their answers. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sequences: list[Tokens] = []

    def add_prompt(self, prompt: Sequence[int]) -> int:
        """How many of a prompt's tokens are new. Call it when the prompt is sent: the server knows it from then on.

        So what several prompts of the same moment share counts once. The last token is always new, because the first
        token of the answer is chosen from its row.
        """
        tokens = np.asarray(prompt, np.int64)
        with self._lock:
            known = max((n_equal(tokens, sequence) for sequence in self._sequences), default=0)
            self._sequences.append(tokens)
        return max(1, len(tokens) - known)

    def add_answer(self, prompt: Sequence[int], generated: Sequence[int]) -> None:
        """The server has continued a prompt."""
        tokens = np.asarray([*prompt, *generated], np.int64)
        with self._lock:
            self._sequences.append(tokens)
