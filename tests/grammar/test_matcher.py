"""Answers along a grammar: masks, drafts, marks behind which it begins, and what was written before."""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pytest

from pyjet.grammar.description import Grammar, GrammarError, Mark
from pyjet.grammar.gbnf_lark import gbnf_to_lark
from pyjet.grammar.json_schema import json_rule
from pyjet.grammar.marks import MarkSearch
from pyjet.grammar.matcher import N_COMPILED, GrammarCompiler, GrammarMatcher
from pyjet.native.samples import mask_words
from tests.grammar.walk import allowed, byte_tokens, bytes_as_tokens, compiler, may_end, vocabulary
from tests.server.scripted import tiny_tokenizer

LIST = Grammar(gbnf_to_lark('root ::= "[" [0-9]+ ("," [0-9]+)* "]"'))
PERSON = Grammar("start: " + json_rule({"type": "object", "properties": {"name": {"type": "string"}},
                                        "required": ["name"]}))  # fmt: skip
THINK = ("<think>", "</think>")


def tokens_of(text: str) -> list[int]:
    return tiny_tokenizer().encode(text)


def follow(grammar: Grammar, text: str) -> GrammarMatcher:
    matcher = compiler().constraint(grammar)
    for token in tokens_of(text):
        matcher.accept(token)
    return matcher


def test_ends_are_allowed_exactly_where_the_text_is_complete() -> None:
    for text, is_complete in (("", False), ("[1", False), ("[1,", False), ("[1,2]", True)):
        assert may_end(follow(LIST, text)) == is_complete, text
    finished = follow(LIST, "[1,2]")
    assert finished.is_active and finished.is_finished
    assert set(allowed(finished).tolist()) == vocabulary().ends
    finished.accept(tiny_tokenizer().eos_id or 0)
    assert not finished.is_active, "what comes behind the end is free"


def test_control_tokens_are_never_text() -> None:
    matcher = compiler().constraint(Grammar("start: /(?s:.*)/"))
    tokens = set(allowed(matcher).tolist())
    control = {i for i in range(vocabulary().n_vocab) if tiny_tokenizer().is_control(i)} - vocabulary().ends
    assert control and not tokens & control and vocabulary().ends <= tokens
    tags = {tiny_tokenizer().token_id(tag) for tag in ("<think>", "</think>", "<tool_call>", "</tool_call>")}
    assert tags <= tokens


@pytest.mark.parametrize("grammar", [LIST, PERSON])
@pytest.mark.parametrize("n_drafts", [1, 3, 7])
def test_masks_behind_drafts_are_those_of_the_matcher_there(grammar: Grammar, n_drafts: int) -> None:
    """Right drafts, a wrong one at each place, and the matcher stays where it is."""
    random = Random(n_drafts)
    words = mask_words(vocabulary().n_vocab)
    answer = tokens_of("[1,23,456,7]" if grammar is LIST else '{"name": "Jörg 你好"}')
    for begin in range(len(answer)):
        drafts = answer[begin : begin + n_drafts]
        for wrong in [*range(len(drafts)), len(drafts)]:
            tried = drafts.copy()
            if wrong < len(drafts):
                tried[wrong] = random.choice([5, 900, 7000])
            matcher = compiler().constraint(grammar)
            for token in answer[:begin]:
                matcher.accept(token)
            before = allowed(matcher).tolist()
            masks = np.zeros((len(tried) + 2, words), np.uint32)
            compiler().fill([(matcher, 1, tried)] if tried else [(matcher, 1, [])], masks)
            step = compiler().constraint(grammar)
            for token in answer[:begin]:
                step.accept(token)
            for i, draft in enumerate([*tried, -1]):
                bits = np.unpackbits(masks[1 + i].view(np.uint8), bitorder="little")
                assert np.flatnonzero(bits).tolist() == allowed(step).tolist()
                if draft < 0 or not bits[draft]:
                    break
                step.accept(draft)
            assert allowed(matcher).tolist() == before and not masks[0].any()


def test_several_answers_at_once() -> None:
    texts = ["", "[", "[1", "[1,2]"]
    matchers = [follow(LIST, text) for text in texts]
    masks = np.zeros((9, mask_words(vocabulary().n_vocab)), np.uint32)
    compiler().fill([(m, 2 * i, tokens_of("[1") if i == 0 else []) for i, m in enumerate(matchers)], masks)
    for i, matcher in enumerate(matchers):
        if i != 1:  # its row belongs to a draft of the first one, too
            bits = np.unpackbits(masks[2 * i].view(np.uint8), bitorder="little")
            assert np.flatnonzero(bits).tolist() == allowed(matcher).tolist()


def test_forced_tokens() -> None:
    matcher = compiler().constraint(PERSON)
    assert matcher.forced() == []
    matcher = follow(PERSON, '{"')
    assert matcher.forced()[:1] == tokens_of("name")[:1]
    calls = compiler().constraint(Grammar('start: "<tool_call>\\n{" /[a-z]/'))
    assert calls.forced() == tokens_of("<tool_call>\n{")[: len(calls.forced())] and len(calls.forced()) >= 2
    assert compiler().constraint(Grammar(LIST.lark, Mark(("x",)))).forced() == []


# marks


def active_at(mark: Mark, text: str, lark: str = LIST.lark) -> int | None:
    """After how many bytes of the text, given one by one, the grammar begins."""
    matcher = compiler().constraint(Grammar(lark, mark))
    for n, token in enumerate(bytes_as_tokens(text), 1):
        matcher.accept(token)
        if matcher.is_active:
            return n
    return None


def test_a_grammar_begins_behind_its_mark() -> None:
    assert active_at(Mark(("</think>",)), "so <think> </think>[1") == len("so <think> </think>")
    assert active_at(Mark(("<a>", "<bc>")), "<b<bc>") == 6
    assert active_at(Mark(("aab",)), "aaaab") == 5
    assert active_at(Mark(("é",)), "aé") == 3


def test_a_mark_that_is_part_of_the_grammar() -> None:
    lark = gbnf_to_lark('root ::= "<t>" [0-9]')
    matcher = compiler().constraint(Grammar(lark, Mark(("<t>",), is_part=True)))
    for token in bytes_as_tokens("say <t>"):
        assert not matcher.is_active
        matcher.accept(token)
    assert {bytes(vocabulary().tokens[t]) for t in allowed(matcher)} == {str(n).encode() for n in range(10)}


def test_thoughts_hide_marks() -> None:
    mark = Mark(("<t>",), thoughts=THINK)
    assert active_at(mark, "<think> <t> </think> <t>") == len("<think> <t> </think> <t>")
    assert active_at(mark, "<t><think>") == 3
    inside = Mark(("<t>",), thoughts=THINK, inside=True)
    assert active_at(inside, "hm <t> </think>\n<t>") == len("hm <t> </think>\n<t>")
    assert active_at(inside, "hm <t>") is None


def test_patterns_as_marks() -> None:
    assert active_at(Mark(pattern=r"x\s*="), "y = x  =") == 8
    lark = gbnf_to_lark('root ::= "=" [0-9]+')
    part = Mark(pattern=r"x(=)", is_part=True)
    assert active_at(part, "ax=5", lark) == 3
    assert active_at(Mark(pattern=r"\A(?:ab)\Z"), "abc") == 2 and active_at(Mark(pattern=r"\A(?:bc)\Z"), "abc") is None


def test_text_behind_the_mark_in_the_same_token_belongs_to_the_grammar() -> None:
    search = MarkSearch(Mark(("<t>",)))
    assert search.add(b"so <t>[1") == b"[1"
    matcher = compiler().constraint(Grammar(LIST.lark, Mark(("=",))))
    token = next(i for i, piece in enumerate(vocabulary().tokens) if piece == b"=[")
    matcher.accept(token)
    assert matcher.is_active and byte_tokens()[b"]"] not in allowed(matcher).tolist()


def test_where_the_text_behind_a_mark_does_not_fit_it_was_no_mark() -> None:
    pieces = vocabulary().tokens
    other = next(piece for piece in pieces if piece[:1] == b"=" and piece[1:].isalpha())
    for piece, is_mark in ((b"==", True), (other, False)):
        matcher = compiler().constraint(Grammar(LIST.lark, Mark(("=",))))
        matcher.accept(pieces.index(piece))
        assert matcher.is_active == is_mark, "behind the second = nothing stands yet"
        if not is_mark:
            matcher.accept(byte_tokens()[b"="])
            assert matcher.is_active


def test_drafts_before_a_mark() -> None:
    mark = Mark(("<t>",), thoughts=THINK)
    matcher = compiler().constraint(Grammar(LIST.lark, mark))
    assert matcher.n_verifiable(bytes_as_tokens("ab<t>[1")) == 4
    assert matcher.n_verifiable(bytes_as_tokens("ab<think><t>")) == 12
    assert matcher.n_verifiable(bytes_as_tokens("ab<t>")) == 4, "looking ahead changes nothing"


def test_drafts_that_the_grammar_allows() -> None:
    matcher = compiler().constraint(LIST)
    end = min(vocabulary().ends)
    allowed_ones = bytes_as_tokens("[1,22]")
    assert matcher.n_verifiable(allowed_ones) == 6
    assert matcher.n_verifiable([*allowed_ones, end, 5]) == 6, "an end is never verified"
    assert matcher.n_verifiable(bytes_as_tokens("[1,,2]")) == 3
    assert matcher.n_verifiable(bytes_as_tokens("]1")) == 0
    matcher.accept(bytes_as_tokens("[")[0])
    assert matcher.n_verifiable(bytes_as_tokens("1]")) == 2, "looking ahead changes nothing"
    matcher.accept(end)
    assert matcher.n_verifiable([5, 6, end, 7]) == 2, "behind an end everything is allowed"


def test_a_token_that_the_grammar_forbids_is_an_error() -> None:
    for before_error in ("", "[1"):
        matcher = compiler().constraint(LIST)
        for token in bytes_as_tokens(before_error):
            matcher.accept(token)
        assert not matcher.error
        matcher.accept(byte_tokens()[b"x"])
        assert "satisfy the grammar" in matcher.error and not matcher.is_finished
        assert matcher.n_verifiable(bytes_as_tokens("[")) == 0
        masks = np.zeros((1, mask_words(vocabulary().n_vocab)), np.uint32)
        compiler().fill([(matcher, 0, [])], masks)  # the step ends with the request


# what was written before


def test_an_answer_goes_on_from_what_was_written() -> None:
    written = tuple(tokens_of("[1,2"))
    assert allowed(compiler().constraint(Grammar(LIST.lark, written=written))).tolist() == allowed(
        follow(LIST, "[1,2")
    ).tolist()  # fmt: skip
    late = Grammar(LIST.lark, Mark(("</think>",)))
    assert not compiler().constraint(late.behind(tokens_of("hm"))).is_active
    assert compiler().constraint(late.behind(tokens_of("hm</think>"))).is_active
    assert compiler().constraint(late.behind(tokens_of("hm")).behind(tokens_of("</think>[1"))).is_active


def test_what_does_not_follow_the_grammar_is_left_as_it_is() -> None:
    other = compiler().constraint(Grammar(LIST.lark, written=tuple(tokens_of("So: "))))
    assert allowed(other).tolist() == allowed(follow(LIST, "")).tolist() and not other.error


# the compiler


def test_grammars_are_compiled_once_and_old_ones_forgotten() -> None:
    compile_ = GrammarCompiler(vocabulary)
    for i in range(3 * N_COMPILED):
        compile_.constraint(Grammar(f'start: "{i}"'))
        compile_.constraint(LIST)
    assert len(compile_._compiled) == N_COMPILED and LIST.lark in compile_._compiled


def test_errors_of_the_compiler() -> None:
    with pytest.raises(GrammarError, match="nothing"):
        compiler().constraint(Grammar("start: nothing"))
    broken = GrammarCompiler(lambda: json.loads("{"))
    broken.prepare()
    with pytest.raises(ValueError):
        broken.constraint(LIST)


def test_a_pattern_that_takes_for_ever_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    slow = Mark(pattern=r"(?:a|aa)+!")
    search = MarkSearch(slow)
    assert search.add(b"a" * 60 + b"? ! ") is None
    assert "is given up" in caplog.text
    assert search.add(b"aa!") is None and search.n_before([b"aa!", b"aa!"]) == 2
    assert MarkSearch(slow).add(b"aaa!b") == b"b"
