"""The weight types that pyjet computes with, and the names llama-server gives to file types."""

from __future__ import annotations

from collections.abc import Mapping

from gguf import GGMLQuantizationType as T

#: Types of weight matrices. Vectors (norms, biases, the decay) and the convolution are F32.
SUPPORTED_TYPES = (
    T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1,
    T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_NL, T.IQ4_XS,
)  # fmt: skip

SUPPORTED_NAMES = ", ".join(kind.name for kind in SUPPORTED_TYPES)

#: Byte offsets, inside a block, of its float16 scales: what can hold NaN or infinity in a quantised tensor.
HALF_SCALE_OFFSETS: dict[T, tuple[int, ...]] = {
    T.Q8_0: (0,),
    T.Q4_0: (0,),
    T.Q4_1: (0, 2),
    T.Q5_0: (0,),
    T.Q5_1: (0, 2),
    T.Q2_K: (80, 82),
    T.Q3_K: (108,),
    T.Q4_K: (0, 2),
    T.Q5_K: (0, 2),
    T.Q6_K: (208,),
    T.IQ4_NL: (0,),
    T.IQ4_XS: (0,),
}

#: general.file_type -> the text of llama-server's `model_ftype`.
_FILE_TYPE_NAMES = {
    0: "all F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K - Medium",
    11: "Q3_K - Small",
    12: "Q3_K - Medium",
    13: "Q3_K - Large",
    14: "Q4_K - Small",
    15: "Q4_K - Medium",
    16: "Q5_K - Small",
    17: "Q5_K - Medium",
    18: "Q6_K",
    19: "IQ2_XXS - 2.0625 bpw",
    20: "IQ2_XS - 2.3125 bpw",
    21: "Q2_K - Small",
    22: "IQ3_XS - 3.3 bpw",
    23: "IQ3_XXS - 3.0625 bpw",
    24: "IQ1_S - 1.5625 bpw",
    25: "IQ4_NL - 4.5 bpw",
    26: "IQ3_S - 3.4375 bpw",
    27: "IQ3_S mix - 3.66 bpw",
    28: "IQ2_S - 2.5 bpw",
    29: "IQ2_M - 2.7 bpw",
    30: "IQ4_XS - 4.25 bpw",
    31: "IQ1_M - 1.75 bpw",
    32: "BF16",
}

#: The most frequent tensor type -> file type, when general.file_type is missing.
_GUESSES = {
    "F32": 0, "F16": 1, "BF16": 32, "Q4_0": 2, "Q4_1": 3, "Q5_0": 8, "Q5_1": 9, "Q8_0": 7, "Q2_K": 10, "Q3_K": 12,
    "Q4_K": 15, "Q5_K": 17, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30,
}  # fmt: skip


def file_type_name(file_type: object, type_counts: Mapping[str, int]) -> str:
    """Name of a model's quantisation as /props shows it, e.g. "Q4_K - Medium".

    Without a usable general.file_type the most frequent tensor type decides and "(guessed) " is put in front.
    """
    if isinstance(file_type, int) and not isinstance(file_type, bool):
        return _FILE_TYPE_NAMES.get(file_type, "unknown, may not work")
    most = max(type_counts, key=lambda name: type_counts[name], default="F32")
    return f"(guessed) {_FILE_TYPE_NAMES[_GUESSES.get(most, 0)]}"
