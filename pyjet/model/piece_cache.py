"""Token ids of pieces of text that were encoded lately: a chat is sent again with each of its messages."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence

MOST_BYTES = 64 << 20  # a few hundred conversations of 23,000 tokens
ENTRY_BYTES = 400  # of an entry besides its text and its ids


class PieceCache:
    """Piece -> ids, of which the least recently used are forgotten. Thread-safe.

    A piece is what the backend gets at once, so its ids depend on nothing else.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._ids: OrderedDict[str, array[int]] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()

    @property
    def n_bytes(self) -> int:
        """What all entries take, about."""
        return self._n_bytes

    def get(self, piece: str) -> Sequence[int] | None:
        """Its ids, None when they are not known."""
        with self._lock:
            ids = self._ids.get(piece)
            if ids is not None:
                self._ids.move_to_end(piece)
            return ids

    def put(self, piece: str, ids: Sequence[int]) -> None:
        """Remember them, unless they alone would take more than there may be."""
        entry = array("i", ids)
        with self._lock:
            if piece in self._ids or _size(piece, entry) > self._most_bytes:
                return
            self._ids[piece] = entry
            self._n_bytes += _size(piece, entry)
            while self._n_bytes > self._most_bytes:
                self._n_bytes -= _size(*self._ids.popitem(last=False))


def _size(piece: str, ids: array[int]) -> int:
    return ENTRY_BYTES + 4 * len(piece) + ids.itemsize * len(ids)
