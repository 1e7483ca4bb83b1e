"""Token prefixes that were computed: a radix tree whose edges are pages of tokens, with checkpoints at its nodes.

Attention needs the keys and values of all positions, which pages hold; recurrent layers need their state at exactly one
position, which only a checkpoint has. So a prompt can go on at a checkpoint and nowhere else; without recurrent layers,
anywhere in the pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np
import numpy.typing as npt

from pyjet.engine.host_store import HostBlock

Tokens = npt.NDArray[np.int32]
# shared: where prompts differ or may, such as the end of a system prompt; turn: in one conversation;
# parked: in the middle of what a preempted sequence does
CheckpointKind = Literal["shared", "turn", "parked"]


class Outlook(IntEnum):
    """Whether a conversation is likely to go on from a checkpoint of its own."""

    LIVE = 0
    PASSED = 1  # there is a longer one, or there will be, from which it is likely to go on


def n_equal(a: Tokens, b: Tokens) -> int:
    """Length of the common prefix."""
    n = min(len(a), len(b))
    differs = np.flatnonzero(a[:n] != b[:n])
    return int(differs[0]) if len(differs) else n


@dataclass(eq=False)
class KeptPage:
    """A page that the tree holds, on the device (``page``), on the host, or on both (-1 and None: not there)."""

    page: int = -1
    host: HostBlock | None = None


class Node:
    """One full page of tokens below its parent; the root stands for no tokens."""

    __slots__ = ("checkpoints", "children", "depth", "kept", "key", "last_used", "parent")

    def __init__(self, parent: Node | None, key: bytes) -> None:
        self.parent = parent
        self.key = key  # int32 tokens of this page
        self.depth: int = 0 if parent is None else parent.depth + 1  # pages from the root to here
        self.kept = KeptPage()
        self.children: dict[bytes, Node] = {}
        self.checkpoints: dict[bytes, Checkpoint] = {}  # by the tokens after this page, fewer than a page
        self.last_used = 0

    @property
    def path(self) -> list[Node]:
        """From the first page to this one; the root is left out."""
        nodes: list[Node] = []
        node: Node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


@dataclass(eq=False)
class Checkpoint:
    """The recurrent state after ``n_tokens`` tokens, in a state slot of the device (-1: none), on the host, or both.

    Of a model without a state it is a place up to which pages are kept.
    ``tail`` holds positions that are no full page, for this checkpoint alone: whoever goes on here copies it.
    """

    node: Node
    tail_key: bytes
    n_tokens: int
    kind: CheckpointKind
    tail: KeptPage | None = None
    state_slot: int = -1
    state_host: HostBlock | None = None
    last_used: int = 0
    outlook: Outlook = Outlook.LIVE
    n_parked: int = 0  # preempted sequences that come back to it: it may leave the device but not be forgotten

    @property
    def pages(self) -> list[KeptPage]:
        """Of all its tokens."""
        kept = [node.kept for node in self.node.path]
        return kept if self.tail is None else [*kept, self.tail]


@dataclass(frozen=True)
class Place:
    """Where a sequence can go on: behind ``n_tokens`` tokens, which the pages up to ``node`` and ``tail`` begin with.

    ``checkpoint`` keeps all of these pages, and the state after the tokens if the model has one.
    """

    checkpoint: Checkpoint
    node: Node
    n_tokens: int
    tail: KeptPage | None

    @property
    def pages(self) -> list[KeptPage]:
        kept = [node.kept for node in self.node.path]
        return kept if self.tail is None else [*kept, self.tail]


@dataclass(frozen=True)
class Match:
    """What is known of a prompt. ``n_common``: tokens of it that are in the tree, in full pages."""

    place: Place | None
    n_common: int = 0

    @property
    def n_tokens(self) -> int:
        return 0 if self.place is None else self.place.n_tokens

    @property
    def path(self) -> list[Node]:
        """Of the full pages."""
        return [] if self.place is None else self.place.node.path


class PrefixTree:
    """The structure alone: it owns no pages."""

    def __init__(self, page_tokens: int) -> None:
        self.page_tokens = page_tokens
        self.root = Node(None, b"")

    def walk(self, tokens: Tokens) -> Iterator[Node]:
        """The nodes of full pages of ``tokens`` that are there, from the root, which is one of them."""
        keys = tokens.tobytes()
        size = self.page_tokens * tokens.itemsize
        node: Node | None = self.root
        begin = 0
        while node is not None:
            yield node
            end = begin + size
            node = node.children.get(keys[begin:end]) if end <= len(keys) else None
            begin = end

    def match(self, tokens: Tokens, most: int) -> Match:
        """The longest checkpoint of at most ``most`` tokens that ``tokens`` goes on from."""
        best = None
        node = self.root
        for node in self.walk(tokens):
            begin = node.depth * self.page_tokens
            for checkpoint in node.checkpoints.values():
                n = checkpoint.n_tokens
                is_better = n <= most and (best is None or n > best.n_tokens)
                if is_better and tokens[begin:n].tobytes() == checkpoint.tail_key:
                    best = Place(checkpoint, node, n, checkpoint.tail)
        return Match(best, node.depth * self.page_tokens)

    def match_anywhere(self, tokens: Tokens, most: int) -> Match:
        """The longest prefix of at most ``most`` tokens that is in the pages, wherever it ends: without a state."""
        *_, node = self.walk(tokens[:most])
        n_full = node.depth * self.page_tokens
        rest = tokens[n_full:most]
        n_rest, tail = 0, None
        owner: Node | Checkpoint = node
        for key, kept, holder in self._pages_behind(node):
            n = n_equal(rest, np.frombuffer(key, np.int32))
            if n > n_rest:
                n_rest, tail, owner = n, kept, holder
        if n_full + n_rest == 0:
            return Match(None)
        checkpoint = owner if isinstance(owner, Checkpoint) else self._below(owner)
        return Match(Place(checkpoint, node, n_full + n_rest, tail), n_full)

    def _pages_behind(self, node: Node) -> Iterator[tuple[bytes, KeptPage, Node | Checkpoint]]:
        """Tokens, page, and who keeps it."""
        for child in node.children.values():
            yield child.key, child.kept, child
        for checkpoint in node.checkpoints.values():
            if checkpoint.tail is not None:
                yield checkpoint.tail_key, checkpoint.tail, checkpoint

    def _below(self, node: Node) -> Checkpoint:
        """Some checkpoint that needs this node: there is one."""
        while not node.checkpoints:
            node = next(iter(node.children.values()))
        return next(iter(node.checkpoints.values()))

    def prefixes(self, checkpoint: Checkpoint) -> list[Checkpoint]:
        """Checkpoints whose tokens the pages of this one begin with."""
        found = []
        below: Node | None = None
        for node in [self.root, *checkpoint.node.path][::-1]:
            next_tokens = checkpoint.tail_key if below is None else below.key
            found += [c for c in node.checkpoints.values() if next_tokens.startswith(c.tail_key)]
            below = node
        return [c for c in found if c is not checkpoint]

    def has_more(self, checkpoint: Checkpoint) -> bool:
        """Whether something is known of what comes behind it."""
        node, key = checkpoint.node, checkpoint.tail_key
        behind = [*node.children, *(tail for tail in node.checkpoints if tail != key)]
        return any(tokens.startswith(key) for tokens in behind)

    def find(self, tokens: Tokens) -> Checkpoint | None:
        """The checkpoint after exactly these tokens."""
        n_full = len(tokens) // self.page_tokens
        for node in self.walk(tokens):
            if node.depth == n_full:
                return node.checkpoints.get(tokens[n_full * self.page_tokens :].tobytes())
        return None

    def grow(self, tokens: Tokens) -> tuple[list[Node], list[Node]]:
        """Nodes for all full pages of ``tokens``: the path from the first page on, and those of it that are new."""
        *_, node = self.walk(tokens)
        new = []
        for begin in range(node.depth * self.page_tokens, len(tokens) - self.page_tokens + 1, self.page_tokens):
            key = tokens[begin : begin + self.page_tokens].tobytes()
            node.children[key] = Node(node, key)
            node = node.children[key]
            new.append(node)
        return node.path, new

    def add(self, checkpoint: Checkpoint) -> None:
        checkpoint.node.checkpoints[checkpoint.tail_key] = checkpoint

    def remove(self, checkpoint: Checkpoint) -> list[Node]:
        """Take a checkpoint out, with the nodes that no other one needs; these are returned."""
        del checkpoint.node.checkpoints[checkpoint.tail_key]
        gone = []
        node = checkpoint.node
        while node.parent is not None and not node.children and not node.checkpoints:
            del node.parent.children[node.key]
            gone.append(node)
            node = node.parent
        return gone

    def nodes(self) -> Iterator[Node]:
        """All nodes but the root."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def checkpoints(self) -> Iterator[Checkpoint]:
        yield from self.root.checkpoints.values()
        for node in self.nodes():
            yield from node.checkpoints.values()
