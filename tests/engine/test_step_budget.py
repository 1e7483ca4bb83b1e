"""Decoding keeps its share of the time, and prompts advance all the same."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from pyjet.engine.step_budget import MAX_PAUSE, MAX_WAIT, MIN_ROWS, STRETCH, Chunk, StepBudget, best_mix
from pyjet.engine.step_costs import SIZES, StepCosts

ROUNDING = 1e-9


def flat(rows: int) -> float:
    return 0.010


def linear(rows: int) -> float:
    return 0.010 + 0.0005 * rows


@dataclass
class Device:
    """Steps that take what ``price`` says, planned by a budget that knows it when ``calibrated``."""

    price: object
    factor: float = 3.0
    max_rows: int = 512
    calibrated: bool = True
    rows: list[int] = field(default_factory=list)  # prompt rows of each step
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        known = [(n, self.price(n)) for n in SIZES if n <= self.max_rows] if self.calibrated else [(1, self.price(1))]
        self.budget = StepBudget(self.max_rows, self.factor, StepCosts(known))

    def steps(self, n: int, n_decoding: int, wanted: int, hiccup: float = 0.0) -> Device:
        for _ in range(n):
            rows = self.budget.chunk_rows(n_decoding, wanted)
            seconds = self.price(rows + n_decoding) + hiccup
            self.budget.observe(rows + n_decoding, seconds)
            self.rows.append(rows)
            self.seconds.append(seconds)
        return self


def test_nobody_decodes_so_chunks_are_as_large_as_they_can_be() -> None:
    assert Device(linear).steps(2, 0, 10_000).rows == [512, 512]
    assert Device(linear).steps(1, 0, 7).rows == [7]


def test_rows_that_cost_nothing_are_all_taken() -> None:
    assert Device(flat).steps(2, 4, 10_000).rows == [508, 508]


def test_the_average_step_takes_what_the_budget_allows() -> None:
    device = Device(linear).steps(200, 1, 10_000)
    mean = sum(device.seconds) / 200 / linear(1)
    assert 2.9 < mean <= 3.0
    assert set(device.rows) <= {39, 47}, "evenly"


def test_a_chunk_stops_below_a_cliff() -> None:
    device = Device(lambda rows: 0.010 if rows <= 64 else 0.028, max_rows=128).steps(20, 1, 10_000)
    assert set(device.rows) == {63}, "127 are within the budget, but slower"


def test_two_sizes_take_turns_when_the_budget_lies_between_them() -> None:
    device = Device(lambda rows: 0.010 if rows <= 16 else 0.036, max_rows=64).steps(100, 1, 10_000)
    assert set(device.rows) == {15, 63}
    assert sum(device.seconds) <= 100 * 0.030 + 0.015 + ROUNDING


def test_no_pause_is_longer_than_allowed() -> None:
    device = Device(lambda rows: 0.060 + 0.001 * rows).steps(50, 1, 10_000)
    assert 0.9 * MAX_PAUSE < max(device.seconds) <= MAX_PAUSE + ROUNDING


def test_a_step_that_took_too_long_is_paid_back() -> None:
    device = Device(linear).steps(10, 1, 10_000)
    before = device.rows[-1]
    device.steps(1, 1, 10_000, hiccup=0.040).steps(2, 1, 10_000)
    assert max(device.rows[-2:]) < before
    assert sum(device.seconds[-3:]) <= 3 * 3 * linear(1) + (STRETCH - 1) * 3 * linear(1) + 0.040


def test_a_hiccup_of_the_machine_delays_prompts_for_a_few_steps_only() -> None:
    device = Device(linear).steps(10, 1, 10_000).steps(1, 1, 10_000, hiccup=5.0).steps(20, 1, 10_000)
    assert sum(device.rows[-14:]) > 14 * 20


def test_credit_of_quiet_times_is_bounded() -> None:
    device = Device(linear).steps(1000, 1, 0).steps(30, 1, 10_000)
    budget = 3 * linear(1)
    assert sum(device.seconds[-30:]) <= 30 * budget + (STRETCH - 1) * budget + ROUNDING


def test_sizes_are_found_without_calibration() -> None:
    device = Device(lambda rows: 0.010 if rows <= 64 else 0.1, calibrated=False).steps(100, 1, 10_000)
    assert min(device.rows[-10:]) >= 31 and max(device.rows[-10:]) <= 63


def test_a_prompt_advances_even_when_the_budget_allows_nothing() -> None:
    device = Device(linear, factor=1.0).steps(2 * (MAX_WAIT + 1), 1, 10_000)
    assert device.rows == ([0] * MAX_WAIT + [MIN_ROWS]) * 2


def test_best_mix_prefers_speed_to_size() -> None:
    idle, small, large = Chunk(1.0, 0), Chunk(2.0, 32), Chunk(2.9, 40)
    assert best_mix([idle, small, large], 3.0) == (small, small)
    assert best_mix([idle, small, Chunk(4.0, 80)], 3.0) == (small, Chunk(4.0, 80))


@st.composite
def stairs(draw: st.DrawFn) -> list[float]:
    """Seconds of each size: never less than of a smaller one, with cliffs."""
    seconds = draw(st.floats(0.0005, 0.05))
    result = []
    for _ in SIZES:
        seconds *= draw(st.sampled_from([1.0, 1.0, 1.02, 1.1, 1.2, 1.8]))
        result.append(seconds)
    return result


def price_of(steps: list[float]) -> object:
    return lambda rows: steps[next(i for i, size in enumerate(SIZES) if size >= rows)]


@settings(deadline=None)
@given(stairs(), st.integers(1, 8), st.sampled_from([1.5, 2.0, 3.0, 8.0]), st.sampled_from([16, 512, 2048]))
def test_the_share_is_kept_in_any_stretch_of_steps(seconds: list, n_decoding: int, factor: float, rows: int) -> None:
    device = Device(price_of(seconds), factor, rows).steps(150, n_decoding, 10_000)
    budget = factor * device.price(n_decoding)
    forced = device.price(n_decoding + MIN_ROWS) > STRETCH * budget  # the least chunk needs more than can be saved
    excess = most = 0.0
    for step in device.seconds:
        excess = max(0.0, excess + step - budget)
        most = max(most, excess)
    assert forced or most <= (STRETCH - 1) * budget * 1.001


@settings(deadline=None)
@given(
    stairs(),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3000), st.sampled_from([0, 0, 0, 0.01, 1.0])), min_size=60),
    st.sampled_from([1.0, 1.2, 3.0]),
    st.booleans(),
)
def test_prompts_always_advance_and_rows_are_bounded(seconds: list, work: list, factor: float, known: bool) -> None:
    device = Device(price_of(seconds), factor, 64, known)
    waited = 0
    for n_decoding, wanted, hiccup in work:
        device.steps(1, n_decoding, wanted, hiccup)
        rows = device.rows[-1]
        assert 0 <= rows <= min(wanted, 64 - n_decoding)
        assert rows > 0 or n_decoding or not wanted
        waited = waited + 1 if wanted and not rows else 0 if rows else waited
        assert waited <= MAX_WAIT


STAIRS = StepCosts([(1, 0.007), (8, 0.007), (32, 0.014), (64, 0.02), *((n, n * 4e-4) for n in (128, 256, 512, 1024))])


def test_short_prompts_are_read_at_once_and_paid_for_later() -> None:
    budget = StepBudget(2048, 3.0, STAIRS)
    n_read, seconds = 0, []
    while n_read < 800:
        rows = budget.chunk_rows(4, 800 - n_read, are_short=True)
        seconds.append(STAIRS.seconds(4 + rows))
        budget.observe(4 + rows, seconds[-1])
        n_read += rows
    assert max(seconds) <= 0.15, "no longer pause"
    assert sum(seconds) <= 0.4
    waiting = 0
    while budget.chunk_rows(4, 10_000) < 28:
        budget.observe(4, 0.007)
        waiting += 1
    assert 0.1 < waiting * 0.007 < 0.2, "half of the debt: a step that only decodes pays twice its time back"


def test_a_debt_ends_with_those_it_was_owed_to() -> None:
    device = Device(linear)
    for _ in range(8):
        rows = device.budget.chunk_rows(1, 250, are_short=True)
        device.budget.observe(rows + 1, linear(rows + 1))
    assert device.budget.chunk_rows(1, 250, are_short=True) < 250
    device.budget.chunk_rows(0, 250, are_short=True)
    assert device.budget.chunk_rows(1, 250, are_short=True) == 250


def test_endless_short_prompts_leave_others_their_share() -> None:
    budget = StepBudget(2048, 3.0, STAIRS)
    seconds = 0.0
    for _ in range(4000):
        n = 4 + budget.chunk_rows(4, 500, are_short=True)
        budget.observe(n, STAIRS.seconds(n))
        seconds += STAIRS.seconds(n)
    assert 4000 * 0.007 / seconds > 0.30


def test_a_prompt_is_cut_where_that_is_faster() -> None:
    """64 rows take 0.02 s, 65 to 128 take 0.05 s: 130 rows are read soonest in two steps of 64 and one of 2."""
    budget = StepBudget(2048, 3.0, STAIRS)
    assert budget.chunk_rows(0, 130) == 64
    assert budget.chunk_rows(0, 66) == 64
    assert budget.chunk_rows(0, 64) == 64
    assert budget.chunk_rows(0, 30) == 30


def test_a_prompt_is_read_at_once_where_steps_of_all_sizes_cost_alike() -> None:
    budget = StepBudget(2048, 3.0, StepCosts([(n, 0.01) for n in (1, 64, 512, 2048)]))
    assert budget.chunk_rows(0, 700) == 700
    assert StepBudget(2048, 3.0, StepCosts()).chunk_rows(0, 700) == 700


def passes(rows: int) -> float:
    """A stair every 64 rows."""
    return 0.006 + 0.02 * -(-rows // 64)


def test_of_steps_about_as_fast_the_shortest_is_taken() -> None:
    """Three steps of 64 rows take 4% longer than one of 192, and who comes meanwhile waits 26 ms instead of 75."""
    prices = {1: 0.01, 16: 0.01, 32: 0.02, 64: 0.026, 128: 0.052, 192: 0.075, 256: 0.1}
    budget = StepBudget(512, 3.0, StepCosts(prices.items()))
    assert budget.chunk_rows(0, 201) == 64


def test_a_large_size_never_measured_is_tried_when_nobody_decodes() -> None:
    budget = StepBudget(1024, 3.0, StepCosts((n, linear(n)) for n in (64, 128, 256, 512, 768, 1024)))
    assert budget.chunk_rows(0, 640) == 640
    budget.observe(640, 2 * linear(640))
    assert budget.chunk_rows(0, 640) < 640
