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
    odd = noise_bits(seed, index, tokens)
    odd >>= np.uint64(11)
    odd |= np.uint64(1)
    times = odd.astype(np.float64)
    times *= 2.0**-53
    np.log(times, out=times)
    return np.negative(times, out=times)


def noise_bits(seed: int, index: int, tokens: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
    """uint64[n]: a hash of seed (64 bits), index (>= 0) and each token id. In place: it may be a whole vocabulary."""
    x = tokens.astype(np.uint64)
    x += np.uint64(1)
    x *= np.uint64(_GAMMA)
    x += np.uint64(noise_state(seed, index))
    return _mix(x)


def first_bits(seed: int, first: int, n_indices: int, n_tokens: int) -> npt.NDArray[np.uint64]:
    """uint64[n_indices, n_tokens]: hashes of seed, indices from ``first`` on and the token ids from 0 on."""
    states = np.arange(first + 1, first + 1 + n_indices, dtype=np.uint64)
    states *= np.uint64(_GAMMA)
    states += np.uint64(_mixed(seed + _GAMMA & _MASK))
    of_tokens = np.arange(1, n_tokens + 1, dtype=np.uint64) * np.uint64(_GAMMA)
    return _mix(_mix(states)[:, None] + of_tokens)


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's finaliser, in place."""
    shifted = np.empty_like(x)
    for shift, factor in zip((30, 27), _FACTORS, strict=True):
        x ^= np.right_shift(x, np.uint64(shift), out=shifted)
        x *= np.uint64(factor)
    x ^= np.right_shift(x, np.uint64(31), out=shifted)
    return x


def noise_state(seed: int, index: int) -> int:
    """What seed and index have to do with a hash."""
    return _mixed(_mixed(seed + _GAMMA & _MASK) + (index + 1) * _GAMMA & _MASK)


def _mixed(x: int) -> int:
    """SplitMix64's finaliser of one number of 64 bits."""
    x = (x ^ x >> 30) * _FACTORS[0] & _MASK
    x = (x ^ x >> 27) * _FACTORS[1] & _MASK
    return x ^ x >> 31
