"""Texts that a grammar allows, and whether it allows a given one, with the vocabulary of pyjet-tiny."""

from __future__ import annotations

from functools import cache
from random import Random

import numpy as np

from pyjet.grammar.description import Grammar
from pyjet.grammar.matcher import GrammarCompiler, GrammarMatcher
from pyjet.grammar.vocabulary import GrammarVocabulary
from pyjet.native.samples import mask_words
from tests.server.scripted import tiny_tokenizer


@cache
def vocabulary() -> GrammarVocabulary:
    return GrammarVocabulary(tiny_tokenizer())


@cache
def compiler() -> GrammarCompiler:
    return GrammarCompiler(vocabulary)


def allowed(matcher: GrammarMatcher) -> np.ndarray:
    """Ids of the tokens that may come next, ascending."""
    masks = np.zeros((1, mask_words(vocabulary().n_vocab)), np.uint32)
    compiler().fill([(matcher, 0, [])], masks)
    return np.flatnonzero(np.unpackbits(masks.view(np.uint8)[0], bitorder="little"))


def may_end(matcher: GrammarMatcher) -> bool:
    return bool(vocabulary().ends.intersection(allowed(matcher).tolist()))


def accepts(lark: str, text: str) -> bool:
    """Whether a whole text follows a grammar, cut into tokens as the model's tokenizer does, and then byte by byte."""
    answers = set()
    for tokens in (tiny_tokenizer().encode(text), bytes_as_tokens(text)):
        matcher = compiler().constraint(Grammar(lark))
        is_allowed = True
        for token in tokens:
            matcher.accept(token)
            if matcher.error:
                is_allowed = False
                break
        answers.add(is_allowed and may_end(matcher))
    assert len(answers) == 1, "it depends on how the text is cut"
    return answers.pop()


@cache
def byte_tokens() -> dict[bytes, int]:
    return {piece: token for token, piece in enumerate(vocabulary().tokens) if len(piece) == 1}


def bytes_as_tokens(text: str) -> list[int]:
    return [byte_tokens()[bytes([byte])] for byte in text.encode()]


def walk(grammar: Grammar, random: Random, most: int = 400, closer: str = "") -> str | None:
    """A text by random allowed tokens, those that close something more often; None: it did not end in time.

    ``closer`` ends what no single token can, such as a text between tags: it is tried now and then.
    """
    matcher, pieces = compiler().constraint(grammar), vocabulary().tokens
    text = b""
    planned: list[int] = []
    for _ in range(most):
        tokens = allowed(matcher)
        assert len(tokens), f"nothing may follow {text!r}"
        inner = tokens[~is_end()[tokens]]
        if len(inner) == 0 or (len(inner) < len(tokens) and (random.random() < 0.5 or len(text) > 200)):
            return text.decode()
        closing = inner[is_closing()[inner]]
        chosen = closing if len(closing) and random.random() < 0.5 else inner
        if closer and not planned and random.random() < 0.1:
            planned = tiny_tokenizer().encode(closer)
        planned = planned if planned and planned[0] in inner else []
        token = planned.pop(0) if planned else int(chosen[random.randrange(len(chosen))])
        matcher.accept(token)
        assert not matcher.error, matcher.error
        text += pieces[token]
    return None


@cache
def is_end() -> np.ndarray:
    return np.array([token in vocabulary().ends for token in range(vocabulary().n_vocab)])


@cache
def is_closing() -> np.ndarray:
    return np.array([bool(set(piece) & set(b'"}],\n')) for piece in vocabulary().tokens])
