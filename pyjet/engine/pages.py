"""The pool of KV pages: who owns which, and how many are promised."""

from __future__ import annotations


class PageLease:
    """Pages of one sequence: a promise of ``n_reserved`` in all, taken one by one as the sequence grows."""

    def __init__(self, pool: PagePool, n_reserved: int) -> None:
        self._pool = pool
        self.n_reserved = n_reserved
        self.pages: list[int] = []

    def grow(self, n_pages: int) -> None:
        """Own at least ``n_pages`` pages. Never fails within the reservation, raises ValueError beyond it."""
        if n_pages > self.n_reserved:
            raise ValueError(f"{n_pages} pages wanted, {self.n_reserved} reserved")
        while len(self.pages) < n_pages:
            self.pages.append(self._pool._take())

    def close(self) -> None:
        """Give pages and promise back. Idempotent."""
        self._pool._return(self)
        self.pages = []
        self.n_reserved = 0


class PagePool:
    """A fixed number of pages. A lease is granted only if every lease could grow to its promise at once."""

    def __init__(self, n_pages: int, page_tokens: int) -> None:
        self.n_pages = n_pages
        self.page_tokens = page_tokens
        # Most recently freed first: those pages are the ones that are warm.
        self._free = list(range(n_pages - 1, -1, -1))
        self._leases: set[PageLease] = set()
        self._n_promised = 0

    @property
    def n_used(self) -> int:
        return self.n_pages - len(self._free)

    def pages_for(self, n_tokens: int) -> int:
        return -(-n_tokens // self.page_tokens)

    def fits(self, n_pages: int) -> bool:
        return self._n_promised + n_pages <= self.n_pages

    def lease(self, n_pages: int) -> PageLease | None:
        """A promise of ``n_pages``, or None when they are not to be had now."""
        if not self.fits(n_pages):
            return None
        lease = PageLease(self, n_pages)
        self._leases.add(lease)
        self._n_promised += n_pages
        return lease

    def _take(self) -> int:
        return self._free.pop()

    def _return(self, lease: PageLease) -> None:
        if lease in self._leases:
            self._leases.remove(lease)
            self._n_promised -= lease.n_reserved
            self._free.extend(reversed(lease.pages))

    def check(self) -> None:
        """AssertionError unless every page has exactly one owner and no promise is broken."""
        owned = [page for lease in self._leases for page in lease.pages]
        assert sorted(owned + self._free) == list(range(self.n_pages)), "a page is lost or owned twice"
        assert self._n_promised == sum(lease.n_reserved for lease in self._leases) <= self.n_pages
        assert all(len(lease.pages) <= lease.n_reserved for lease in self._leases)
