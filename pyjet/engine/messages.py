"""What crosses the pipe between the server's process and the engine's: small pickled dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyjet.engine.client import EngineLimits, SlotActionResult, SlotView
from pyjet.engine.counters import Counters
from pyjet.engine.loop import Cancel, Stop, Submit
from pyjet.engine.request import Event
from pyjet.engine.slot_jobs import SlotJob
from pyjet.engine.stall import RunningStep


@dataclass(frozen=True)
class Query:
    """Ask for slots or counters; the Reply carries the same number."""

    number: int
    what: Literal["slots", "slots_with_tokens", "counters"]


@dataclass(frozen=True)
class Loading:
    """Progress of loading, in bytes."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True)
class Ready:
    limits: EngineLimits


@dataclass(frozen=True)
class Events:
    """All events of one step. ``counters`` come along when a request ended, so that they survive the process."""

    events: list[Event]
    counters: Counters | None = None


@dataclass(frozen=True)
class Reply:
    number: int
    value: list[SlotView] | Counters


@dataclass(frozen=True)
class Pulse:
    """The process lives. ``step``: what computes now; None: nothing does."""

    step: RunningStep | None


@dataclass(frozen=True)
class SlotDone:
    """The result of the slot job of this number, or a sentence that says why there is none."""

    number: int
    answer: SlotActionResult | str


@dataclass(frozen=True)
class Died:
    """The engine cannot go on; the process ends after this. ``while_loading``: it never was ready."""

    message: str
    while_loading: bool


ToEngine = Submit | Cancel | SlotJob | Stop | Query
FromEngine = Loading | Ready | Events | Reply | Pulse | SlotDone | Died
