"""GBNF: which texts follow a grammar, and what is said about one that cannot be read."""

from __future__ import annotations

import pytest

from pyjet.grammar.check import check_lark
from pyjet.grammar.description import GrammarError
from pyjet.grammar.gbnf import MAX_CHARS
from pyjet.grammar.gbnf_lark import gbnf_to_lark, grammar_to_lark
from tests.grammar.walk import accepts

JSON = r'''
# values of JSON, as llama.cpp's users write them
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
'''
CASES = [
    ('root ::= "a🤗b"', ["a🤗b"], ["", "a", "a🤗", "ab"]),
    ('root ::= [a-z]+ "c"', ["ac", "abcc"], ["c", "ab", "Ac"]),
    ('root ::= "a" | "b"\n  | "c"', ["a", "b", "c"], ["", "ab"]),
    ('root ::= ("x" [0-9]){2,3}', ["x1x2", "x1x2x3"], ["x1", "x1x2x3x4"]),
    ('root ::= "a"{2}', ["aa"], ["a", "aaa"]),
    ('root ::= "a"{2,} "b"?', ["aa", "aaab"], ["a", "ab"]),
    ('root ::= .', ["a", "\n", "🤗"], ["", "ab"]),
    (r'root ::= [^a\]\n-]', ["b", "\\", " "], ["a", "]", "\n", "-"]),
    (r'root ::= "\x41\u00e9\U0001F917\t\"\\\[\]"', ['Aé🤗\t"\\[]'], ["A"]),
    ("root ::= a-b\na-b ::= x_1 #c\nx_1 ::= [é-ü] # d", ["ö"], ["o"]),
    ('root ::= "(" root ")" | ""', ["", "()", "((()))"], ["(", "())"]),
    ('root ::= sum\nsum ::= sum "+" n | n\nn ::= [0-9]+ | "(" sum ")"', ["1", "1+22+(3+4)"], ["+1", "1+", "(1"]),
    ('root ::= a | b\na ::= "(" a ")" | ws\nws ::= [ ]*\nb ::= "ab" "c" a | "a" "bd" a', ["abc( )", "abd"], ["ab"]),
    (JSON, ['{"a": [1, -2.5e3, {"b": "x\\n ü"}], "c": null}', "{}", '{"a":[]}\n'], ['{"a" 1}', "[1]", '{"a":01}']),
]


@pytest.mark.parametrize(("grammar", "texts", "others"), CASES)
def test_texts(grammar: str, texts: list[str], others: list[str]) -> None:
    lark = gbnf_to_lark(grammar)
    check_lark(lark)
    for text in texts:
        assert accepts(lark, text), text
    for text in others:
        assert not accepts(lark, text), text


ERRORS = [
    ("root ::= (", "line 1, column 11: expected ')' for the '(' at line 1, column 10"),
    ("root ::= ", "line 1, column 1: the rule 'root' describes nothing"),
    ("", "line 1, column 1: expected a rule named 'root'"),
    ('x ::= "a"', "line 1, column 1: expected a rule named 'root'"),
    ("root ::= root", "line 1, column 1: no text follows the rule 'root'"),
    ('root ::= a\na ::= "x" a', "line 1, column 1: no text follows the rule 'root'"),
    ('root ::= "a', "line 1, column 12: expected '\"' for the one at line 1, column 10"),
    ('root ::= "a" "b\n"', "line 1, column 16: expected '\"' for the one at line 1, column 14"),
    ("root ::= [a", "line 1, column 12: expected ']' for the '[' at line 1, column 10"),
    ("root ::= []", "line 1, column 10: an empty set of characters"),
    ("root ::= [z-a]", "line 1, column 11: a range from 'z' to 'a'"),
    ('root ::= "a" x', "line 1, column 14: there is no rule named 'x'"),
    ('root ::= "a"\nb ::= (\n  c )', "line 3, column 3: there is no rule named 'c'"),
    ('root ::= "a" )', "line 1, column 14: expected the end of the rule"),
    ("root ::= *", "line 1, column 10: '*' has nothing to repeat"),
    (r'root ::= "\q"', r"line 1, column 11: unknown escape '\q'"),
    (r'root ::= "\x1"', r"line 1, column 11: expected 2 hexadecimal digits after \x"),
    (r'root ::= "\uD800"', r"line 1, column 11: \uD800 is no character"),
    ('root = "a"', "line 1, column 6: expected '::=', found '='"),
    ("root", "line 1, column 5: expected '::=', found the end"),
    ('root ::= "a"\n  foo bar', "line 2, column 7: expected '::=', found 'b'"),
    ('root ::= "a"{3,1}', "line 1, column 13: at least 3 and at most 1 repetitions"),
    ('root ::= "a"{x}', "line 1, column 13: expected a number of repetitions"),
    ('root ::= "a"{999999}', "line 1, column 13: more than 100000 repetitions"),
    ("root ::= <think>", "line 1, column 10: references to tokens are not supported"),
    ("root ::= " + "(" * 10_000 + '"a"' + ")" * 10_000, "line 1, column 110: more than 100 groups inside each other"),
    ("root ::= " + "x" * MAX_CHARS, "a grammar of 262153 characters is too long"),
]


@pytest.mark.parametrize(("grammar", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_errors_point_at_the_place(grammar: str, message: str) -> None:
    with pytest.raises(GrammarError) as error:
        gbnf_to_lark(grammar)
    assert str(error.value).startswith(message)


def test_rules_that_the_root_does_not_need_are_left_out() -> None:
    assert gbnf_to_lark('root ::= "a"\nx ::= "b"') == gbnf_to_lark('root ::= "a"')


def test_llguidances_own_syntax() -> None:
    lark = grammar_to_lark('%llguidance {}\nstart: "a" /[0-9]+/')
    check_lark(lark)
    assert accepts(lark, "a17")
    with pytest.raises(GrammarError):
        check_lark("%llguidance {}\nstart: nothing")


def test_a_large_grammar() -> None:
    text = 'root ::= "a"\n' + "".join(f'r{i} ::= "b" r{i + 1} # c\n' for i in range(9_000)) + 'r9000 ::= "x"\n'
    assert accepts(gbnf_to_lark(text), "a")
