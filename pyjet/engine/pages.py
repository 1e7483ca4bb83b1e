"""The pool of KV pages: which are free, and how many hold each of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class PagePool:
    """A fixed number of pages. Sequences and the prefix tree hold pages; who lets go of one last frees it.

    Only the sequence that took a page may write to it, and only positions that nobody else reads.
    """

    def __init__(self, n_pages: int, page_tokens: int) -> None:
        self.n_pages = n_pages
        self.page_tokens = page_tokens
        # Most recently freed first: those pages are the ones that are warm.
        self._free = list(range(n_pages - 1, -1, -1))
        self._holders = [0] * n_pages

    @property
    def n_free(self) -> int:
        return len(self._free)

    @property
    def n_used(self) -> int:
        return self.n_pages - len(self._free)

    def pages_for(self, n_tokens: int) -> int:
        return -(-n_tokens // self.page_tokens)

    def n_holders(self, page: int) -> int:
        return self._holders[page]

    def take(self, n: int) -> list[int] | None:
        """``n`` free pages, held once; None, and nothing changes, when not so many are free."""
        if n > len(self._free):
            return None
        pages = [self._free.pop() for _ in range(n)]
        for page in pages:
            self._holders[page] = 1
        return pages

    def hold(self, page: int) -> int:
        """Hold a page once more, and return it."""
        assert self._holders[page] > 0, f"page {page} is free"
        self._holders[page] += 1
        return page

    def drop(self, pages: Iterable[int]) -> None:
        """Hold pages once less."""
        for page in pages:
            assert self._holders[page] > 0, f"page {page} is free"
            self._holders[page] -= 1
            if not self._holders[page]:
                self._free.append(page)

    def check(self, held: Iterable[int]) -> None:
        """AssertionError unless ``held``, one entry for each holder, is exactly what is held."""
        counts = Counter(held)
        assert [counts[page] for page in range(self.n_pages)] == self._holders, "a page is lost or held by nobody known"
        assert sorted(self._free) == [page for page in range(self.n_pages) if not self._holders[page]]
