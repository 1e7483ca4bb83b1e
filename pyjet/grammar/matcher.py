"""Follows answers along their grammars and says which tokens may come next."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llguidance import LLExecutor, LLMatcher
from llguidance.numpy import fill_next_token_bitmask_par, fill_next_token_bitmask_par_with_draft_tokens

from pyjet.grammar.description import Grammar, GrammarError
from pyjet.grammar.marks import MarkSearch
from pyjet.grammar.vocabulary import GrammarVocabulary

log = logging.getLogger(__name__)
Masks = npt.NDArray[np.uint32]
N_COMPILED = 64  # grammars that are kept compiled: agents send the same tools with every turn
_THREADS = 8  # that compute masks side by side: one answer has one mask, which takes some 50 microseconds


class GrammarMatcher:
    """One answer's place in its grammar. Tokens before ``begins_behind`` are free."""

    def __init__(self, grammar: Grammar, matcher: Any, vocabulary: GrammarVocabulary) -> None:
        self._matcher = matcher
        self._new: list[int] = []  # tokens that it has still to consume
        self._vocabulary = vocabulary
        mark = grammar.begins_behind
        self._search = None if mark is None else MarkSearch(mark)
        self._is_over = False
        self._accept_written(grammar.written)

    @property
    def matcher(self) -> Any:
        """llguidance's, behind all tokens of the answer."""
        if self._new:
            self._matcher.consume_tokens(self._new)
            self._new = []
        return self._matcher

    @property
    def is_active(self) -> bool:
        """The next token is constrained."""
        return self._search is None and not self._is_over

    @property
    def is_finished(self) -> bool:
        """Only a token that ends the answer may come. A parser that gave up has not come to an end."""
        return self.is_active and bool(self.matcher.is_stopped()) and not self.error

    @property
    def error(self) -> str:
        """Why the answer cannot go on: a limit of the parser; empty when it can."""
        return first_line(self.matcher.get_error()) if self.is_active and self.matcher.is_error() else ""

    def accept(self, token: int) -> None:
        """A token became part of the answer."""
        if self._is_over or token in self._vocabulary.ends:
            self._is_over = True  # whatever comes behind an end is free
        elif self._search is None:
            self._new.append(token)
        else:
            self._begin_behind(self._search, self._search.add(self._piece(token)))

    def n_verifiable(self, drafts: Sequence[int]) -> int:
        """How many of these it allows that come before the next one begins the grammar, or ends the answer."""
        if self._search is not None:
            return self._search.n_before([self._piece(token) for token in drafts])
        n = next((i for i, token in enumerate(drafts) if token in self._vocabulary.ends), len(drafts))
        return int(self.matcher.validate_tokens(drafts[:n])) if n and self.is_active else n

    def forced(self) -> list[int]:
        """Tokens that have to come, as far as that is certain without the model."""
        return list(self.matcher.compute_ff_tokens()) if self.is_active else []

    def _piece(self, token: int) -> bytes:
        tokens = self._vocabulary.tokens
        return tokens[token] if 0 <= token < len(tokens) else b""

    def _begin_behind(self, search: MarkSearch, text: bytes | None) -> None:
        """A mark was found; ``text`` is what the grammar has to take already. Where it does not, it was no mark."""
        while text is not None:
            tokens = self._vocabulary.backend.tokenize_bytes(text) if text else []
            begun = self.matcher.deep_copy()
            if begun.try_consume_tokens(tokens) == len(tokens):
                self._matcher, self._search = begun, None
                return
            text = search.next()

    def _accept_written(self, tokens: tuple[int, ...]) -> None:
        """An answer that was begun by others and does not follow the grammar is taken as it is."""
        if not self.is_active:
            for token in tokens:
                self.accept(token)
            return
        begun = self.matcher.deep_copy()
        if begun.try_consume_tokens(list(tokens)) == len(tokens):
            self._matcher = begun


class GrammarCompiler:
    """Makes constraints and fills masks (pyjet.engine.constraint). ``load`` is called once, by whoever comes first."""

    def __init__(self, load: Callable[[], GrammarVocabulary]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._vocabulary: GrammarVocabulary | None = None
        self._compiled: OrderedDict[str, Any] = OrderedDict()
        self._executor = LLExecutor(min(_THREADS, os.cpu_count() or 1))

    def prepare(self) -> None:
        """Load the vocabulary now. What is wrong with it is said to those who need it."""
        try:
            self._loaded()
        except Exception:
            log.debug("no vocabulary for grammars", exc_info=True)

    def constraint(self, grammar: Grammar) -> GrammarMatcher:
        """A new answer's. Raises GrammarError; takes some milliseconds for a grammar that is new."""
        vocabulary = self._loaded()
        with self._lock:
            compiled = self._compiled.pop(grammar.lark, None) or _compile(grammar.lark, vocabulary)
            self._compiled[grammar.lark] = compiled
            if len(self._compiled) > N_COMPILED:
                self._compiled.popitem(last=False)
            return GrammarMatcher(grammar, compiled.deep_copy(), vocabulary)

    def _loaded(self) -> GrammarVocabulary:
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = self._load()
            return self._vocabulary

    def fill(self, parts: Sequence[tuple[Any, int, Sequence[int]]], masks: Masks) -> None:
        """Masks of active GrammarMatchers into uint32[rows, words].

        Of each (matcher, row, drafts): for its next token into that row, and for the ones behind its drafts into the
        rows below, as far as the grammar allows these.
        """
        words: npt.NDArray[np.int32] = masks.view(np.int32)
        alone = [(m.matcher, row) for m, row, drafts in parts if not drafts]
        with_drafts = [(m.matcher, row, list(drafts)) for m, row, drafts in parts if drafts]
        if alone:
            fill_next_token_bitmask_par(self._executor, alone, words)
        if with_drafts:
            fill_next_token_bitmask_par_with_draft_tokens(self._executor, with_drafts, words)


def _compile(lark: str, vocabulary: GrammarVocabulary) -> Any:
    matcher = LLMatcher(vocabulary.backend, lark, log_level=0)
    if matcher.is_error():
        raise GrammarError(first_line(matcher.get_error()))
    return matcher


def first_line(message: str) -> str:
    """Of what llguidance says; behind it comes the state of its parser."""
    return message.partition("\n")[0]
