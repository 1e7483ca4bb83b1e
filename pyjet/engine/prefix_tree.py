"""Token prefixes that were computed: a radix tree whose edges are pages of tokens, with checkpoints at its nodes.

Attention needs the keys and values of all positions, which pages hold; recurrent layers need their state at exactly one
position, which only a checkpoint has. So a prompt can go on at a checkpoint and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pyjet.engine.host_store import HostBlock

Tokens = npt.NDArray[np.int32]
# shared: where prompts differ or may, such as the end of a system prompt; turn: in one conversation;
# parked: in the middle of what a preempted sequence does
CheckpointKind = Literal["shared", "turn", "parked"]


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
    n_parked: int = 0  # preempted sequences that come back to it: it may leave the device but not be forgotten

    @property
    def pages(self) -> list[KeptPage]:
        """Of all its tokens."""
        kept = [node.kept for node in self.node.path]
        return kept if self.tail is None else [*kept, self.tail]


@dataclass(frozen=True)
class Match:
    """What is known of a prompt. ``n_common``: tokens of it that are in the tree, in full pages."""

    checkpoint: Checkpoint | None
    n_common: int = 0

    @property
    def n_tokens(self) -> int:
        return 0 if self.checkpoint is None else self.checkpoint.n_tokens


class PrefixTree:
    """The structure alone: it owns no pages."""

    def __init__(self, page_tokens: int) -> None:
        self.page_tokens = page_tokens
        self.root = Node(None, b"")

    def walk(self, tokens: Tokens) -> Iterator[Node]:
        """The nodes of full pages of ``tokens`` that are there, from the root, which is one of them."""
        node: Node | None = self.root
        begin = 0
        while node is not None:
            yield node
            end = begin + self.page_tokens
            node = node.children.get(tokens[begin:end].tobytes()) if end <= len(tokens) else None
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
                    best = checkpoint
        return Match(best, node.depth * self.page_tokens)

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
