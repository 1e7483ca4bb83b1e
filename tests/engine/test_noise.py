"""The numbers that draws use: those of the native side, exponential, and different for every seed, index and token."""

from __future__ import annotations

import numpy as np
import pytest

from pyjet.engine.noise import exponentials, first_bits, noise_bits
from tests.support import chi_square


# native/tests/test_sample_noise.cc has the same numbers.
@pytest.mark.parametrize(
    ("seed", "index", "token", "bits"),
    [
        (0x0, 0, 0, 0x238275BC38FCBE91),
        (0x1, 0, 0, 0xB18A02F46D8D86C3),
        (0x0, 1, 0, 0x2F101FE21496EA20),
        (0x0, 0, 1, 0xF89A2566B5822C54),
        (0x2A, 7, 248319, 0xB07B7DF31AD417C),
        (0xFFFFFFFF, 1000000, 5, 0xB5A39DBC86F02F4F),
        (0xFFFFFFFFFFFFFFFF, 2147483647, 2147483647, 0x8431D96364B1001),
    ],
)
@pytest.mark.parametrize("dtype", [np.int32, np.intp])
def test_known_bits(seed: int, index: int, token: int, bits: int, dtype: type) -> None:
    assert noise_bits(seed, index, np.array([3, token], dtype))[1] == bits


def test_small_seeds_indices_and_tokens_share_nothing() -> None:
    tokens = np.arange(64)
    bits = [noise_bits(seed, index, tokens) for seed in range(64) for index in range(64)]
    assert len(np.unique(np.concatenate(bits))) == 64**3


def test_times_are_exponential() -> None:
    times = np.concatenate([exponentials(seed, 5, np.arange(1000)) for seed in range(50)])
    assert (times > 0).all() and np.isfinite(times).all()
    cells = np.floor(np.exp(-times) * 50).astype(int)  # uniform
    assert chi_square.fits(np.bincount(cells, minlength=50), np.full(50, 1 / 50))
    assert np.log(times).min() < -9, "also near 0, where the winner is found"


def test_bits_of_many_indices_at_once() -> None:
    for seed, first in ((0, 0), (2**64 - 1, 5), (42, 300)):
        expected = [noise_bits(seed, index, np.arange(7)) for index in range(first, first + 20)]
        assert (first_bits(seed, first, 20, 7) == np.array(expected)).all()
