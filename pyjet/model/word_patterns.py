"""Regular expressions that cut text into words before byte-pair encoding: those of the models' tokenizer.json files.

They differ from these where llama-server does: contractions ignore case in ASCII only, only ASCII letters have a case,
code points that Unicode assigned after version 15 have no category, and blanks are in no range of characters.
"""

from __future__ import annotations

# Oniguruma's tables are newer than Unicode 15. These ranges cover every letter, mark and number added since; the
# rest of what they cover is unassigned.
_ADDED_AFTER_15 = (
    (0x897, 0x897), (0x1B4E, 0x1B4F), (0x1B7F, 0x1B7F), (0x1C89, 0x1C8A), (0xA7CB, 0xA7CD), (0xA7DA, 0xA7DC),
    (0x105C0, 0x105F3), (0x10D40, 0x10D85), (0x10EC2, 0x10EFC), (0x11380, 0x113E2), (0x116D0, 0x116E3),
    (0x11BC0, 0x11BF9), (0x11F5A, 0x11F5A), (0x13460, 0x143FA), (0x16100, 0x16139), (0x16D40, 0x16D79),
    (0x18CFF, 0x18CFF), (0x1CCF0, 0x1CCF9), (0x1E5D0, 0x1E5FF),
)  # fmt: skip

# Letters with a case, as the first DeepSeek models list them.
_CASED = (
    (0xB5, 0xB5), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x1BA), (0x1BC, 0x1BF), (0x1C4, 0x293), (0x295, 0x2AF), (0x370,
    0x373), (0x376, 0x376), (0x377, 0x377), (0x37B, 0x37D), (0x37F, 0x37F), (0x386, 0x386), (0x388, 0x38A), (0x38C,
    0x38C), (0x38E, 0x3A1), (0x3A3, 0x3F5), (0x3F7, 0x481), (0x48A, 0x52F), (0x531, 0x556), (0x10A0, 0x10C5), (0x13A0,
    0x13F5), (0x13F8, 0x13FD), (0x1C90, 0x1CBA), (0x1CBD, 0x1CBF), (0x1D00, 0x1D2B), (0x1D6B, 0x1D77), (0x1D79,
    0x1D9A), (0x1E00, 0x1F15), (0x1F18, 0x1F1D), (0x1F20, 0x1F45), (0x1F48, 0x1F4D), (0x1F50, 0x1F57), (0x1F59,
    0x1F59), (0x1F5B, 0x1F5B), (0x1F5D, 0x1F5D), (0x1F5F, 0x1F7D), (0x1F80, 0x1FB4), (0x1FB6, 0x1FBC), (0x1FBE,
    0x1FBE), (0x1FC2, 0x1FC4), (0x1FC6, 0x1FCC), (0x1FD0, 0x1FD3), (0x1FD6, 0x1FDB), (0x1FE0, 0x1FEC), (0x1FF2,
    0x1FF4), (0x1FF6, 0x1FFC), (0x2102, 0x2102), (0x2107, 0x2107), (0x210A, 0x2113), (0x2115, 0x2115), (0x2119,
    0x211D), (0x2124, 0x2124), (0x2126, 0x2126), (0x2128, 0x2128), (0x212A, 0x212D), (0x212F, 0x2134), (0x2139,
    0x2139), (0x213C, 0x213F), (0x2145, 0x2149), (0x214E, 0x214E), (0x2183, 0x2183), (0x2184, 0x2184), (0x2C00,
    0x2C7B), (0x2C7E, 0x2CE4), (0x2CEB, 0x2CEE), (0x2CF2, 0x2CF2), (0x2CF3, 0x2CF3), (0xA640, 0xA66D), (0xA680,
    0xA69B), (0xA722, 0xA76F), (0xA771, 0xA787), (0xA78B, 0xA78E), (0xAB70, 0xABBF), (0xFB00, 0xFB06), (0xFB13,
    0xFB17), (0xFF21, 0xFF3A), (0xFF41, 0xFF5A), (0x10400, 0x1044F), (0x104B0, 0x104D3), (0x104D8, 0x104FB), (0x10C80,
    0x10CB2), (0x10CC0, 0x10CF2), (0x118A0, 0x118DF), (0x1E900, 0x1E943),
)  # fmt: skip


def _ranges(pairs: tuple[tuple[int, int], ...]) -> str:
    return "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in pairs)


def _category(name: str) -> str:
    """A regex set of one Unicode category as of version 15; usable alone and inside another set."""
    return f"[\\p{{{name}}}&&[^{_ranges(_ADDED_AFTER_15)}]]"


_L, _M, _N, _P, _S = (_category(name) for name in "LMNPS")
_CONTRACTION = "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_OTHERS = f" ?[^\\s{_L}{_N}]+[\\r\\n]*"
_UPPER, _LOWER = f"[{_L}&&[^a-z]]", f"[{_L}&&[^A-Z]]"
_CJK = r"[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+"
_OLD_CJK = r"[\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}&&[^\s]]+"
_ASCII_MARK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"


def _words(numbers: str, *, letters: str = _L, contraction: str = _CONTRACTION + "|", others: str = _OTHERS) -> str:
    return f"{contraction}[^\\r\\n{_L}{_N}]?{letters}+|{numbers}|{others}|{_BLANKS}"


def _cased_words(numbers: str, suffix: str) -> str:
    """Words that are cut where a small letter is followed by a capital one."""
    first = f"[^\\r\\n{_L}{_N}]?"
    return (
        f"{first}{_UPPER}*{_LOWER}+{suffix}|{first}{_UPPER}+{_LOWER}*{suffix}|{numbers}"
        f"| ?[^\\s{_L}{_N}]+[\\r\\n/]*|{_BLANKS}"
    )


GPT2 = f"'s|'t|'re|'ve|'m|'ll|'d| ?{_L}+| ?{_N}+| ?[^\\s{_L}{_N}]+|\\s+(?!\\S)|\\s+"
DEFAULT = (f"[{_P}\\$\\+<=>\\^~\\|]+", GPT2, f"{_N}+", "[0-9][0-9][0-9]")
FALCON = (f"[{_P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]")
DIGITS = (_N, GPT2)
LLAMA3 = _words(f"{_N}{{1,3}}")
QWEN2 = _words(_N)
QWEN35 = (
    f"{_CONTRACTION}|[^\\r\\n{_L}{_N}]?[{_L}{_M}]+|{_N}| ?[^\\s{_L}{_M}{_N}]+[\\r\\n]*|{_BLANKS}"
)
MINICPM5 = (f"{_N}{{1,3}}", _words(f"{_N}+"))
SEED_CODER = _words(_N, others=f" ?[^\\s{_L}{_N}\\r\\n]+")
UFAKZEKA = _words(_N, contraction="")
BAILING = (
    f"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\\r\\n{_L}{_N}]?{_L}+|{_N}|{_OTHERS}"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
EXAONE_MOE = (
    f"{_CONTRACTION}|[^\\r\\n{_L}{_N}]?(?:{_L}{_M}*(?: {_L}{_M}*)*)+|{_N}| ?[^\\s{_L}{_N}]+[\\r\\n/]?"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
TEKKEN = _cased_words(_N, "")
GPT4O = _cased_words(f"{_N}{{1,3}}", f"(?:{_CONTRACTION})?")
DEEPSEEK_LLM = (
    r"[\r\n]", f"\\s?[A-Za-z{_ranges(_CASED)}]+", r"\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}"
    r"\x{3001}-\x{3002}]+", r"\s+$", _OLD_CJK, f"{_N}+",
)  # fmt: skip
DEEPSEEK_CODER = (r"[\r\n]", f"\\s?{_L}+", f"\\s?{_P}+", _OLD_CJK, _N)
DEEPSEEK_V3 = (
    f"{_N}{{1,3}}",
    _CJK,
    f"{_ASCII_MARK}[A-Za-z]+|[^\\r\\n{_L}{_P}{_S}]?[{_L}{_M}]+| ?[{_P}{_S}]+[\\r\\n]*|{_BLANKS}",
)
BLOOM = (" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+",)
VIKING = (*BLOOM, _N)
JAIS2 = (
    f"{_CONTRACTION}|[^\\r\\n{_L}{_N}]?{_L}+|{_N}{{1,3}}|{_OTHERS}|\\s*[\\r\\n]+|"
    + "".join(f"\\s{{{n}}}(?!\\S)|" for n in (512, 256, 128, 64, 32, 16, 8, 4))
    + r"\s{1,2}(?!\S)|\s{1}"
)
LAGUNA = (r"[^\n]+|\n+", QWEN2)
