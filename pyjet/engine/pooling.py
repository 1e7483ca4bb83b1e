"""Hidden rows of a prompt on their way to its embedding.

Rows come in chunks as the prompt is read. A mean is added up row by row, so its bits do not depend on where chunks
end; no more than one chunk's rows are held at a time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyjet.engine.request import Pooling
from pyjet.native.step import Float32Array


class Pool:
    """Of one prompt of ``n_prompt`` tokens. ``n_taken``: its first rows, as far as they have been here."""

    def __init__(self, kind: Pooling, n_prompt: int) -> None:
        self._kind = kind
        self._n_prompt = n_prompt
        self._sum: npt.NDArray[np.float64] | None = None
        self.n_taken = 0

    @property
    def n_skippable(self) -> int:
        """First rows of the prompt that nobody asks for (again): they may come from a cache."""
        if self._kind == "last":
            return self._n_prompt - 1
        return self._n_prompt - 1 if self._kind == "cls" and self.n_taken else self.n_taken

    def wanted(self, first: int, n_rows: int) -> tuple[int, int]:
        """Begin and end of the rows that are wanted among those at positions ``first`` .. first + n_rows - 1."""
        begin, end = max(first, self.n_taken), first + n_rows
        if self._kind == "cls":
            end = min(end, 1)
        elif self._kind == "last":
            begin = max(begin, self._n_prompt - 1)
        return (begin, end) if begin < end else (first, first)

    def add(self, rows: Float32Array, n_read: int) -> Float32Array | None:
        """Take the wanted rows of a chunk, float32[n, width], with which ``n_read`` tokens of the prompt are read.

        Returns float32[m, width], rows of the embedding that are known now, or None. ``rows`` is not kept.
        """
        self.n_taken = max(self.n_taken, n_read)
        if len(rows) == 0:
            return None
        if self._kind != "mean":
            return rows.copy()
        if self._sum is None:
            self._sum = np.zeros(rows.shape[1])
        for row in rows:
            self._sum += row
        return None

    def finish(self) -> Float32Array | None:
        """What is known only when the whole prompt is read: float32[1, width] or None."""
        if self._sum is None:
            return None
        return (self._sum / self._n_prompt).astype(np.float32)[None]


class HiddenRows:
    """Hands out the hidden rows of one step, float32[n, width], sequence by sequence."""

    def __init__(self, rows: Float32Array) -> None:
        self._rows = rows
        self._begin = 0

    def next(self, n_rows: int) -> Float32Array:
        begin, self._begin = self._begin, self._begin + n_rows
        return self._rows[begin : self._begin]
