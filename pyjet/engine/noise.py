"""The random numbers of a draw: an exponential time per (seed, index of the token, token id).

The same numbers as native/core/sample_noise.h, which says what they are for. They are the outputs of SplitMix64
(Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014), one for each token id.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def exponentials(seed: int, index: int, tokens: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    """float64[n] with mean 1, one for each token id: -ln(u), u an odd multiple of 2**-53, so neither 0 nor 1."""
    odd = noise_bits(seed, index, tokens) >> np.uint64(11) | np.uint64(1)
    times: npt.NDArray[np.float64] = -np.log(odd.astype(np.float64) * 2.0**-53)
    return times


def noise_bits(seed: int, index: int, tokens: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
    """uint64[n]: a hash of seed (64 bits), index (>= 0) and each token id."""
    state = _mixed(_mixed(seed + _GAMMA & _MASK) + (index + 1) * _GAMMA & _MASK)
    x = (tokens.astype(np.uint64) + np.uint64(1)) * np.uint64(_GAMMA) + np.uint64(state)
    x = (x ^ x >> np.uint64(30)) * np.uint64(_FACTORS[0])
    x = (x ^ x >> np.uint64(27)) * np.uint64(_FACTORS[1])
    return x ^ x >> np.uint64(31)


def _mixed(x: int) -> int:
    """SplitMix64's finaliser of one number of 64 bits."""
    x = (x ^ x >> 30) * _FACTORS[0] & _MASK
    x = (x ^ x >> 27) * _FACTORS[1] & _MASK
    return x ^ x >> 31
