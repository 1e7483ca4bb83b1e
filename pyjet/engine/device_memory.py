"""What the engine copies: pages and recurrent states, on the device and to the host. NativeEngine has these calls."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

UInt8Array = npt.NDArray[np.uint8]


class DeviceMemory(Protocol):
    """See pyjet.native.NativeEngine. Copies take effect in the order of the calls, steps among them."""

    @property
    def state_bytes(self) -> int: ...

    @property
    def page_bytes(self) -> int: ...

    @property
    def copies_beside_steps(self) -> bool:
        """Whether a state read while a step computes takes no time of the step's."""
        ...

    def state_commit(self, slot: int, n_accept: int) -> None: ...

    def state_copy(self, from_slot: int, to_slot: int) -> None: ...

    def state_read(self, slot: int, out: UInt8Array | None = None) -> UInt8Array: ...

    def state_write(self, slot: int, data: UInt8Array) -> None: ...

    def pages_copy(self, from_pages: Any, to_pages: Any) -> None: ...

    def pages_read(self, pages: Any, out: UInt8Array | None = None) -> UInt8Array: ...

    def pages_write(self, pages: Any, data: UInt8Array) -> None: ...

    def host_memory(self, n_bytes: int) -> UInt8Array: ...
