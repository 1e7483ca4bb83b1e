"""Every sampler, alone and in chains, against llama.cpp's: the same candidates left, with the same probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from pyjet.assets import default_model_path
from pyjet.engine.candidates import Candidates, softmax
from pyjet.engine.request import DEFAULT_SAMPLERS, SamplingParams
from pyjet.engine.samplers.adaptive import AdaptiveP
from pyjet.engine.samplers.mirostat import Mirostat
from pyjet.engine.samplers.tempering import temperature
from pyjet.engine.sampling import Sampler
from pyjet.model import Tokenizer
from pyjet.model.reader import open_gguf
from pyjet.server.dry_breakers import token_breakers
from pyjet.server.infill_tokens import infill_tokens
from tests.support.llama_samplers import LlamaChain
from tests.support.llama_vocab import LlamaVocab
from tests.support.peer import library_or_skip

N_CASES = 300
SURE = 1e-9  # less probable candidates may be lost to rounding

RANGES: dict[str, dict[str, tuple]] = {
    "penalties": {
        "repeat_penalty": (1.0, 1.1, 1.5, 0.7), "frequency_penalty": (0.0, 0.3, -0.2),
        "presence_penalty": (0.0, 0.6, -0.4), "repeat_last_n": (0, 1, 5, 64),
    },
    "dry": {
        "dry_multiplier": (0.0, 0.4, 0.8, -0.3), "dry_base": (1.0, 1.3, 1.75, 3.0), "dry_allowed_length": (0, 1, 2, 4),
        "dry_penalty_last_n": (0, 2, 7, 30, 1000),
    },
    "top_n_sigma": {"top_n_sigma": (-1.0, 0.0, 0.5, 1.0, 2.5)},
    "top_k": {"top_k": (0, 1, 2, 40, 5000)},
    "typ_p": {"typical_p": (1.0, 0.9, 0.5, 0.2, 0.01)},
    "top_p": {"top_p": (1.0, 0.95, 0.5, 0.1, 0.0)},
    "min_p": {"min_p": (0.0, 0.01, 0.05, 0.3, 1.0)},
    "xtc": {"xtc_probability": (0.0, 1.0), "xtc_threshold": (0.02, 0.1, 0.2, 0.5, 0.6)},
    "temperature": {
        "temperature": (0.0, 0.3, 0.8, 1.0, 2.0), "dynatemp_range": (0.0, 0.0, 0.2, 0.5, 1.5),
        "dynatemp_exponent": (1.0, 0.3, 2.0),
    },
    "infill": {},
    "adaptive_p": {"adaptive_target": (-1.0, 0.0, 0.3, 0.7, 1.0), "adaptive_decay": (0.0, 0.5, 0.9, 0.99)},
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def has_oracle() -> None:
    library_or_skip()


@pytest.fixture(scope="module")
def vocab() -> Iterator[LlamaVocab]:
    with LlamaVocab(default_model_path()) as vocab:
        yield vocab


def random_params(rng: np.random.Generator, samplers: tuple[str, ...]) -> SamplingParams:
    fields = {field: rng.choice(values).item() for name in samplers for field, values in RANGES[name].items()}
    if "typ_p" in samplers and {"temperature", "top_n_sigma"} & set(samplers[: samplers.index("typ_p")]):
        fields["typical_p"] = 1.0  # llama.cpp's entropy of candidates that may be impossible is no number
    return SamplingParams(**fields, samplers=samplers, min_keep=int(rng.choice([0, 0, 1, 3, 50])), seed=1)


def random_logits(rng: np.random.Generator, n: int, params: SamplingParams) -> np.ndarray:
    """Flat, ordinary and peaked ones, some with impossible candidates."""
    # Of flat ones llama.cpp's first mirostat finds a rank that its integers cannot hold.
    scales = [0.2, 2.0, 6.0] if params.mirostat != 1 else [4.0, 8.0]
    logits = (rng.standard_normal(n) * rng.choice(scales)).astype(np.float32)
    if rng.random() < 0.2 and not ("typ_p" in params.samplers and params.typical_p < 1):
        logits[rng.random(n) < 0.3] = -np.inf
        logits[rng.integers(n)] = 1.0
    return logits


def random_history(rng: np.random.Generator, n: int) -> list[int]:
    """With repetitions, and short enough that single tokens occur again."""
    few = rng.integers(0, n, rng.integers(1, 6))
    return few[rng.integers(0, len(few), rng.integers(0, 60))].tolist()


def assert_same(ours: dict[int, float], theirs: dict[int, float]) -> None:
    tokens = [token for token in ours | theirs if max(ours.get(token, 0), theirs.get(token, 0)) > SURE]
    left, right = (np.array([probs.get(token, 0.0) for token in tokens]) for probs in (ours, theirs))
    np.testing.assert_allclose(left, right, rtol=2e-4, atol=1e-7)


def compare(params: SamplingParams, logits: np.ndarray, history: list[int], **of_dry: object) -> None:
    sampler = Sampler(params, len(logits), n_probs=len(logits), post_probs=True)
    sampler.accept_prompt(tuple(history))
    with LlamaChain(params, len(logits), **of_dry) as chain:
        chain.accept(*history)
        probs = sampler.sample(logits)[1]
        assert probs is not None
        assert_same(dict(probs.top), chain.sample(logits)[1])


def test_infill(vocab: LlamaVocab) -> None:
    tokenizer = Tokenizer.from_metadata(open_gguf(default_model_path())[0].metadata)
    tokens = infill_tokens(tokenizer)
    rng = np.random.default_rng(7)
    words = tokenizer.encode(" the there then a an and in int integer")
    for _ in range(N_CASES):
        params = replace(random_params(rng, ("top_k", "top_p", "infill", "temperature")), infill_tokens=tokens)
        params = replace(params, top_k=int(rng.choice([2, 5, 40])))
        logits = random_logits(rng, vocab.n_tokens, params)
        logits[words] = logits.max() + rng.standard_normal(len(words))
        of_ends = logits.max() - rng.choice([40.0, 6.0, 2.0, 0.0])
        logits[sorted(tokenizer.eog_ids)] = of_ends + rng.random(len(tokenizer.eog_ids))
        compare(params, logits, [], vocab=vocab.handle)


@pytest.mark.parametrize("name", [name for name in RANGES if name not in ("dry", "infill")])
def test_a_sampler_alone(name: str) -> None:
    rng = np.random.default_rng(len(name))
    for _ in range(N_CASES):
        n = int(rng.choice([1, 2, 10, 300, 2000]))
        params = random_params(rng, (name,))
        compare(params, random_logits(rng, n, params), random_history(rng, n))


def test_chains_in_any_order() -> None:
    rng = np.random.default_rng(3)
    names = [name for name in RANGES if name not in ("dry", "infill")]
    for _ in range(N_CASES):
        n = int(rng.choice([1, 2, 10, 300, 2000]))
        order = tuple(rng.permutation(names)[: rng.integers(1, len(names) + 1)].tolist())
        params = random_params(rng, order)
        compare(params, random_logits(rng, n, params), random_history(rng, n))


def test_dry(vocab: LlamaVocab) -> None:
    tokenizer = Tokenizer.from_metadata(open_gguf(default_model_path())[0].metadata)
    rng = np.random.default_rng(4)
    texts = ("\n", ":", " the", "return x", "é", "")
    lines = ("a = b", "def f(x):", "return x", "the end\n", "if", "return xy", "é!")
    words = [tokenizer.encode(line) for line in lines]
    for _ in range(N_CASES):
        few = tuple(texts[: rng.integers(0, len(texts) + 1)])
        history = [token for i in rng.integers(0, len(words), rng.integers(0, 20)) for token in words[i]]
        samplers = DEFAULT_SAMPLERS if rng.random() < 0.3 else ("dry",)
        params = random_params(rng, samplers)
        params = replace(params, dry_breakers=token_breakers(few, tokenizer))
        logits = random_logits(rng, vocab.n_tokens, params)
        logits[history] += 8  # what can be penalised is probable
        compare(params, logits, history, vocab=vocab.handle, breakers=few)


def test_mirostat() -> None:
    """Over answers: what it lets through depends on what was chosen before."""
    rng = np.random.default_rng(6)
    for i in range(N_CASES // 3):
        params = SamplingParams(
            mirostat=1 + i % 2, mirostat_tau=float(rng.choice([0.5, 3.0, 5.0])),
            mirostat_eta=float(rng.choice([0.05, 0.1, 0.3])), temperature=float(rng.choice([0.0, 0.7, 1.0])),
        )  # fmt: skip
        n = int(rng.choice([300, 2000]))
        follow(params, Mirostat(params.mirostat, params.mirostat_tau, params.mirostat_eta, n), n, rng)


def test_adaptive_p_over_answers() -> None:
    rng = np.random.default_rng(5)
    for _ in range(N_CASES // 10):
        target, decay, t = float(rng.choice([0.0, 0.3, 0.7, 1.0])), float(rng.choice([0.0, 0.5, 0.99])), 0.8
        params = SamplingParams(
            adaptive_target=target, adaptive_decay=decay, temperature=t, samplers=("adaptive_p", "temperature")
        )
        follow(params, AdaptiveP(target, decay), int(rng.choice([10, 300, 2000])), rng)


def follow(params: SamplingParams, memory: Mirostat | AdaptiveP, n: int, rng: np.random.Generator) -> None:
    """The oracle draws an answer of ten tokens, which ours remembers as if it had."""
    with LlamaChain(params, n) as chain:
        for _ in range(10):
            logits = random_logits(rng, n, params)
            token, theirs = chain.sample(logits)
            candidates = Candidates(logits)
            temperature(candidates, params.temperature)
            memory.apply(candidates)
            ours = {candidates.token(i): p for i, p in enumerate(softmax(candidates.logits).tolist())}
            assert_same(ours, theirs)
            chain.accept(token)
            memory.note(token, ours[token])
            memory.accept(token)
