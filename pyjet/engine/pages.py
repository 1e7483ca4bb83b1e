"""The pool of KV pages: who owns which."""

from __future__ import annotations


class PageLease:
    """Pages of one sequence in the order of its positions. Empty at first and after ``free``; it can grow again."""

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self.pages: list[int] = []

    def grow(self, n_pages: int) -> bool:
        """Own at least ``n_pages`` pages. False, and nothing changes, when not enough are free."""
        return self._pool.move_to(self, n_pages - len(self.pages))

    def free(self) -> None:
        """Give all pages back. Idempotent."""
        self._pool.take_back(self)


class PagePool:
    """A fixed number of pages."""

    def __init__(self, n_pages: int, page_tokens: int) -> None:
        self.n_pages = n_pages
        self.page_tokens = page_tokens
        # Most recently freed first: those pages are the ones that are warm.
        self._free = list(range(n_pages - 1, -1, -1))
        self._leases: set[PageLease] = set()  # those that own pages

    @property
    def n_free(self) -> int:
        return len(self._free)

    @property
    def n_used(self) -> int:
        return self.n_pages - len(self._free)

    def pages_for(self, n_tokens: int) -> int:
        return -(-n_tokens // self.page_tokens)

    def move_to(self, lease: PageLease, n_more: int) -> bool:
        """Add ``n_more`` free pages to a lease, all or none."""
        if n_more > len(self._free):
            return False
        if n_more > 0:
            self._leases.add(lease)
            lease.pages.extend(self._free.pop() for _ in range(n_more))
        return True

    def take_back(self, lease: PageLease) -> None:
        self._leases.discard(lease)
        self._free.extend(reversed(lease.pages))
        lease.pages.clear()

    def check(self) -> None:
        """AssertionError unless every page has exactly one owner."""
        owned = [page for lease in self._leases for page in lease.pages]
        assert sorted(owned + self._free) == list(range(self.n_pages)), "a page is lost or owned twice"
        assert all(lease.pages for lease in self._leases)
