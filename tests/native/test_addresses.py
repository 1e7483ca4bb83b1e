"""Addresses of arrays, which are taken without numpy's own way because that takes ten times as long."""

from __future__ import annotations

import numpy as np
import pytest

from pyjet.native.samples import SAMPLE_DTYPE
from pyjet.native.step import SEQ_DTYPE, data_address


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.float32, np.uint8, SEQ_DTYPE, SAMPLE_DTYPE])
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5)])
def test_the_address_is_that_of_the_data(dtype: np.dtype, shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, dtype)
    assert data_address(array) == array.ctypes.data
    assert data_address(array[1:]) == (array[1:].ctypes.data if len(array) > 1 else 0)


def test_arrays_that_must_not_be_written_and_empty_ones() -> None:
    array = np.frombuffer(b"abcd", np.uint8)
    assert data_address(array) == array.ctypes.data
    assert data_address(np.empty(0, np.int32)) == 0
