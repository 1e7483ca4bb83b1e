"""All settings of one request, and what the command line makes of those that a request leaves out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyjet.engine.request import RANDOM_SEED, Breakers, InfillTokens, SamplingParams
from pyjet.grammar.description import Grammar
from pyjet.server.json_fields import float32
from pyjet.server.logit_bias import end_token_bans
from pyjet.server.profiles import NO_PROFILE, Profile
from pyjet.server.thought_budget import ThoughtRule

if TYPE_CHECKING:
    from pyjet.model.tokenizer import Tokenizer
    from pyjet.server.options import ServerOptions

CHAT_FORMATS = ("Content-only", "peg-simple", "peg-native", "peg-gemma4", "peg-minimax-m3")


@dataclass
class CompletionParams:
    """All settings of one request, defaults filled in. Names are llama-server's; floats are single precision."""

    # sampling
    seed: int
    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    top_k: int
    top_p: float
    min_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    typical_p: float
    repeat_last_n: int
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: list[str]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    adaptive_target: float
    adaptive_decay: float
    samplers: list[str]
    dry_breakers: Breakers = field(default_factory=Breakers)  # the engine's form, when DRY is on
    infill_tokens: InfillTokens | None = None  # when that sampler is in the chain
    min_keep: int = 0
    ignore_eos: bool = False
    logit_bias: list[tuple[int, float]] = field(default_factory=list)
    backend_sampling: bool = False
    # what is generated and when it ends
    n_predict: int = -1
    stop: list[str] = field(default_factory=list)
    n_indent: int = 0
    t_max_predict_ms: int = -1
    n_keep: int = 0
    n_discard: int = 0
    n_cmpl: int = 1
    grammar: str = ""
    json_schema: Any = None
    grammar_lazy: bool = False
    grammar_triggers: list[Any] = field(default_factory=list)
    rules: Grammar | None = None  # what these, or a chat's tools, ask of the answer (pyjet.server.answer_rules)
    preserved_tokens: list[int] = field(default_factory=list)
    # cache and slot
    cache_prompt: bool = True
    n_cache_reuse: int = 0
    id_slot: int = -1
    # ours: which limits hold, and who goes first
    profile: Profile = NO_PROFILE
    priority: int = 0
    # what the answer shows
    stream: bool = False
    include_usage: bool = False
    n_probs: int = 0
    post_sampling_probs: bool = False
    return_tokens: bool = False
    return_progress: bool = False
    timings_per_token: bool = False
    response_fields: list[str] = field(default_factory=list)
    sse_ping_interval: int = 30
    verbose: bool = False
    speculative_types: list[str] = field(default_factory=lambda: ["none"])
    # chat
    chat_format: str = CHAT_FORMATS[0]
    reasoning_format: str = "deepseek"
    generation_prompt: str = ""
    thoughts: ThoughtRule | None = None  # None: they may take as long as they like, and nobody can end them
    reasoning_control: bool = False  # a client may end the thoughts while they go on

    @property
    def reasoning_in_content(self) -> bool:
        return self.stream and self.reasoning_format == "deepseek-legacy"

    def max_tokens(self, server_limit: int, n_prompt: int) -> int:
        """Tokens to generate behind a prompt: -1 takes ``server_limit`` (``--n-predict``), 0 still yields one token.

        The profile may allow less than that.
        """
        n_predict = server_limit if self.n_predict < 0 else self.n_predict
        return self.profile.bound(n_predict if n_predict < 0 else max(1, n_predict), n_prompt)

    def sampling(self, choice: int = 0) -> SamplingParams:
        """The engine's view for choice number ``choice``: each has its own seed, as at llama-server."""
        seed = self.seed if self.seed == RANDOM_SEED else (self.seed + choice) % 2**32
        return SamplingParams(
            temperature=self.temperature,
            dynatemp_range=self.dynatemp_range,
            dynatemp_exponent=self.dynatemp_exponent,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            typical_p=self.typical_p,
            top_n_sigma=self.top_n_sigma,
            xtc_probability=self.xtc_probability,
            xtc_threshold=self.xtc_threshold,
            repeat_penalty=self.repeat_penalty,
            repeat_last_n=self.repeat_last_n,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            dry_multiplier=self.dry_multiplier,
            dry_base=self.dry_base,
            dry_allowed_length=self.dry_allowed_length,
            dry_penalty_last_n=self.dry_penalty_last_n,
            dry_breakers=self.dry_breakers,
            infill_tokens=self.infill_tokens,
            mirostat=self.mirostat,
            mirostat_tau=self.mirostat_tau,
            mirostat_eta=self.mirostat_eta,
            adaptive_target=self.adaptive_target,
            adaptive_decay=self.adaptive_decay,
            logit_bias=tuple(self.logit_bias),
            seed=seed,
            min_keep=self.min_keep,
            samplers=tuple(self.samplers),
        )


def default_params(options: ServerOptions, tokenizer: Tokenizer) -> CompletionParams:
    """What a request without fields gets: the command line's settings."""
    bias = [(token, float32(value)) for token, value in options.logit_bias]
    return CompletionParams(
        seed=options.seed % 2**32,
        temperature=float32(options.temp),
        dynatemp_range=float32(options.dynatemp_range),
        dynatemp_exponent=float32(options.dynatemp_exp),
        top_k=options.top_k,
        top_p=float32(options.top_p),
        min_p=float32(options.min_p),
        top_n_sigma=float32(options.top_n_sigma),
        xtc_probability=float32(options.xtc_probability),
        xtc_threshold=float32(options.xtc_threshold),
        typical_p=float32(options.typical_p),
        repeat_last_n=options.repeat_last_n,
        repeat_penalty=float32(options.repeat_penalty),
        presence_penalty=float32(options.presence_penalty),
        frequency_penalty=float32(options.frequency_penalty),
        dry_multiplier=float32(options.dry_multiplier),
        dry_base=float32(options.dry_base),
        dry_allowed_length=options.dry_allowed_length,
        dry_penalty_last_n=options.dry_penalty_last_n,
        dry_sequence_breakers=list(options.dry_sequence_breakers),
        mirostat=options.mirostat,
        mirostat_tau=float32(options.mirostat_ent),
        mirostat_eta=float32(options.mirostat_lr),
        adaptive_target=float32(options.adaptive_target),
        adaptive_decay=float32(options.adaptive_decay),
        samplers=list(options.samplers),
        ignore_eos=options.ignore_eos,
        logit_bias=bias + (end_token_bans(tokenizer) if options.ignore_eos else []),
        backend_sampling=options.backend_sampling,
        n_predict=options.n_predict,
        stop=list(options.reverse_prompt),
        n_keep=options.keep,
        grammar=options.grammar,
        json_schema=json.loads(options.json_schema) if options.json_schema else None,
        cache_prompt=options.cache_prompt,
        n_cache_reuse=options.cache_reuse,
        sse_ping_interval=options.sse_ping_interval,
        verbose=options.verbose,
        speculative_types=list(options.spec_type),
        reasoning_format=options.reasoning_format,
    )
