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
    """Which slots hold the prompt of their last request. For debugging: it decides nothing."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._lock = threading.Lock()
        self._holding: set[int] = set()
        if enabled:
            _log.debug("prompts of idle slots are cached __TEST_TAG_CACHE_IDLE_SLOTS_ENABLED__")

    def started(self, slot: int) -> None:
        """A request begins in ``slot``: the prompts of the idle ones are left to the cache."""
        if not self._enabled:
            return
        with self._lock:
            left = sorted(self._holding - {slot})
            self._holding.clear()
        for idle in left:
            _log.debug("slot %d is idle, the cache keeps its prompt __TEST_TAG_CACHE_IDLE_SLOT__", idle)

    def finished(self, slot: int, n_tokens: int) -> None:
        """The request in ``slot`` ended; ``n_tokens`` are in its context."""
        _log.debug("slot %d: updating prompt cache with %d tokens", slot, n_tokens)
        with self._lock:
            self._holding.add(slot)
