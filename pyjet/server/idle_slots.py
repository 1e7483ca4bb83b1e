"""``--cache-idle-slots`` in the log: what llama-server's users and tests look for there.

At llama-server a request that starts empties idle slots into its host cache. Here the prompts of all slots are in one
prefix cache from the start, so a slot that becomes idle has nothing to move; from the next request on its pages are
that cache's to keep, to move to host memory or to drop.
"""

from __future__ import annotations

import logging
import threading

_log = logging.getLogger(__name__)


class IdleSlots:
    """What slots hold of their last request. For debugging: it decides nothing."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._lock = threading.Lock()
        self._n_held: dict[int, int] = {}  # tokens, by slot
        if enabled:
            _log.debug("prompts of idle slots are cached __TEST_TAG_CACHE_IDLE_SLOTS_ENABLED__")

    def started(self, slot: int) -> None:
        """A request begins in ``slot``: the prompts of the idle ones are left to the cache.

        As at llama-server this is told before the answer begins: the log is written by a thread of its own, and whoever
        has the answer may look for it there.
        """
        if not self._enabled:
            return
        with self._lock:
            left = sorted((idle, n) for idle, n in self._n_held.items() if idle != slot)
            self._n_held.clear()
        for idle, n_tokens in left:
            _log.debug("slot %d is idle, the cache keeps its prompt __TEST_TAG_CACHE_IDLE_SLOT__", idle)
            _log.debug("updating prompt cache with %d tokens of slot %d", n_tokens, idle)

    def finished(self, slot: int, n_tokens: int) -> None:
        """The request in ``slot`` ended; ``n_tokens`` are in its context."""
        with self._lock:
            self._n_held[slot] = n_tokens
