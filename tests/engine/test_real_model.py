"""The engine on the embedded model: answers do not depend on company, chunks or slots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pyjet.assets import default_model_path
from pyjet.engine.local import LocalEngine
from pyjet.engine.process import EngineProcess
from pyjet.engine.request import FinishedEvent, GenerationRequest, SamplingParams, TokenEvent, TokenProbs
from pyjet.engine.sampling import Sampler
from pyjet.engine.settings import EngineSettings

SETTINGS = EngineSettings(
    str(default_model_path()), n_slots=4, n_ctx_slot=256, n_ctx_total=1024, n_ubatch=48, n_threads=2
)


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    with LocalEngine.load(SETTINGS) as engine:
        yield engine


def request(i: int, name: str) -> GenerationRequest:
    sampling = SamplingParams(temperature=0.0) if i % 2 else SamplingParams(seed=i, repeat_penalty=1.1)
    return GenerationRequest(name, tuple(range(100 + i, 100 + i + 20 * (i + 1))), sampling, max_tokens=12)


def tokens(stream) -> list[int]:
    return [event.token for event in stream if isinstance(event, TokenEvent)]


def test_four_at_once_equal_each_alone(engine: LocalEngine) -> None:
    alone = [tokens(engine.submit(request(i, f"alone-{i}"))) for i in range(5)]
    streams = [engine.submit(request(i, f"together-{i}")) for i in range(5)]
    assert [tokens(stream) for stream in streams] == alone
    assert all(len(answer) == 12 for answer in alone)


def test_n_probs_row_equals_the_greedy_token(engine: LocalEngine) -> None:
    greedy = tokens(engine.submit(request(1, "plain")))
    asked = GenerationRequest("probs", request(1, "").prompt, SamplingParams(temperature=0.0), max_tokens=12, n_probs=3)
    events = [event for event in engine.submit(asked) if isinstance(event, TokenEvent)]
    assert [event.token for event in events] == greedy
    assert [event.probs.top[0][0] for event in events if event.probs] == greedy


def test_in_its_own_process() -> None:
    with EngineProcess(SETTINGS) as engine:
        assert engine.wait_ready(60), engine.error
        events = list(engine.submit(request(1, "a")))
        assert isinstance(events[-1], FinishedEvent) and events[-1].timings.prompt_n == 40


def answer(stream) -> list[tuple[int, object]]:
    """Tokens with the log-probabilities of their best candidates: equal only if the logits are."""
    return [(event.token, event.probs) for event in stream if isinstance(event, TokenEvent)]


def test_preempted_answers_have_the_same_bits() -> None:
    """Two sequences in a pool that holds one and a half."""
    small = EngineSettings(
        str(default_model_path()), n_slots=2, n_ctx_slot=256, n_ctx_total=384, n_ubatch=48, n_threads=2
    )
    wanted = [replace(request(i, f"{i}"), max_tokens=-1, n_probs=5) for i in (0, 1)]
    with LocalEngine.load(small) as engine:
        alone = [answer(engine.submit(replace(one, id=f"alone-{one.id}"))) for one in wanted]
        assert engine.counters().preemptions == 0
        streams = [engine.submit(one) for one in wanted]
        assert [answer(stream) for stream in streams] == alone
        counters = engine.counters()
    assert [len(one) for one in alone] == [236, 216]
    assert counters.preemptions > 0 and counters.tokens_recomputed == 0


def test_device_and_host_choose_the_same_tokens(engine: LocalEngine) -> None:
    """With n_probs the host runs the chain, without the step does."""
    for seed in range(4):
        sampling = SamplingParams(seed=seed, temperature=1.2, top_k=0 if seed % 2 else 40, presence_penalty=0.3)
        asked = GenerationRequest(f"device-{seed}", tuple(range(100, 140)), sampling, max_tokens=40)
        device = tokens(engine.submit(asked))
        host = tokens(engine.submit(replace(asked, id=f"host-{seed}", n_probs=1)))
        assert device == host
        assert len(set(device)) > 4


def test_sampled_answers_do_not_depend_on_company(engine: LocalEngine) -> None:
    """Short and long prompts, penalties, biases and greedy requests come and go beside the one that is looked at."""
    sampling = SamplingParams(seed=7, temperature=1.5, top_k=0, logit_bias=((101, 3.0), (7, float("-inf"))))
    asked = GenerationRequest("alone", tuple(range(100, 150)), sampling, max_tokens=40)
    alone = tokens(engine.submit(asked))
    others = [engine.submit(request(i, f"first-{i}")) for i in range(2)]
    beside = engine.submit(replace(asked, id="beside"))
    others += [engine.submit(request(i, f"then-{i}")) for i in range(4)]
    assert tokens(beside) == alone
    assert all(len(tokens(stream)) == 12 for stream in others)


def test_what_the_step_does_not_settle_is_sampled_on_the_host(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_host: list[Sampler] = []
    sample = Sampler.sample

    def count(self: Sampler, *row: Any) -> tuple[int, TokenProbs | None]:
        on_host.append(self)
        return sample(self, *row)

    monkeypatch.setattr(Sampler, "sample", count)
    few = SamplingParams(seed=3, top_k=0, top_p=0.9)
    many = replace(few, min_keep=2000)  # more candidates than the step looks at
    asked = GenerationRequest("few", tuple(range(100, 120)), few, max_tokens=12)
    assert len(tokens(engine.submit(asked))) == 12 and not on_host
    device = tokens(engine.submit(replace(asked, id="many", sampling=many)))
    assert len(on_host) == 12 and all(sampler.device_sample is not None for sampler in on_host)
    assert tokens(engine.submit(replace(asked, id="probs", sampling=many, n_probs=1))) == device
