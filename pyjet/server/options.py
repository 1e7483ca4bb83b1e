"""The server's settings: one field per long option of the command line.

``ServerOptions()`` holds llama-server's defaults. The command line fills it through
``option_parser``; tests and the ``pyjet`` commands build it directly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyjet.engine.client import STEP_BUDGET
from pyjet.engine.request import Pooling
from pyjet.engine.speculation_settings import SpeculationSettings
from pyjet.server.profiles import Profile

DEFAULT_SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
DEFAULT_SEED = 0xFFFFFFFF
"""Seed value that means "draw a random one"; ``-1`` on the command line."""


@dataclass
class ServerOptions:
    """Everything a user can set. Counts are tokens, sizes MiB, times seconds, unless said otherwise."""

    # model, context, compute
    model: str | None = None
    """Path of the GGUF file; ``None`` serves the embedded model."""
    ctx_size: int = 0
    """Total context; 0 = the model's trained length."""
    parallel: int = -1
    """Slots; -1 = four slots on a unified context."""
    kv_unified: bool | None = None
    """Each slot may use the whole context; ``None`` = only when ``parallel`` is -1."""
    kv_unified_per_slot: int = 0
    """Limit of one slot on a unified context; 0 = none."""
    batch_size: int = 2048
    ubatch_size: int = 512
    n_predict: int = -1
    keep: int = 0
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    flash_attn: str = "auto"
    gpu_layers: str = "auto"
    device: str | None = None
    """``cpu``, ``none``, ``cuda``, ``auto`` or device names; ``None`` = auto."""
    cpu_isa: str = "auto"
    split_mode: str = "layer"
    tensor_split: list[float] = field(default_factory=list)
    main_gpu: int = 0
    fit: bool = True
    fit_target: list[int] = field(default_factory=lambda: [1024])
    fit_ctx: int = 4096
    threads: int = -1
    threads_batch: int = -1
    load_mode: str = "auto"
    override_kv: dict[str, Any] = field(default_factory=dict)
    rope_freq_base: float = 0.0
    """0 = the model's own; another value must equal it."""
    check_tensors: bool = False
    warmup: bool = True
    context_shift: bool = False
    lora: list[str] = field(default_factory=list)
    lora_init_without_apply: bool = False

    # server
    host: list[str] = field(default_factory=lambda: ["127.0.0.1"])
    port: int = 8080
    reuse_port: bool = False
    timeout: int = 3600
    threads_http: int = -1
    sse_ping_interval: int = 30
    api_prefix: str = ""
    path: str | None = None
    api_keys: list[str] = field(default_factory=list)
    ssl_key_file: str | None = None
    ssl_cert_file: str | None = None
    cors_origins: str = "*"
    cors_methods: str = "GET, POST, DELETE, OPTIONS"
    cors_headers: str = "*"
    cors_credentials: bool = True
    alias: list[str] = field(default_factory=list)
    """Sorted, without duplicates; the first is the model id."""
    profiles: list[Profile] = field(default_factory=list)
    """Further names of the model, with limits of their own."""
    tags: list[str] = field(default_factory=list)
    slots: bool = True
    props: bool = False
    metrics: bool = False
    slot_save_path: str | None = None
    ui: bool = True
    ui_config: dict[str, Any] = field(default_factory=dict)
    sleep_idle_seconds: int = -1
    log_prompts_dir: str | None = None
    embeddings: bool = False
    pooling: Pooling | None = None
    """Which rows make an embedding; ``None`` = as the model's metadata says, else all of them."""
    embd_normalize: int = 2
    offline: bool = False

    # chat and text
    jinja: bool = True
    chat_template: str | None = None
    """A built-in name or Jinja source (``--chat-template-file`` fills the same field)."""
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    reasoning_format: str = "deepseek"
    """``none``, ``deepseek``, ``deepseek-legacy`` or ``auto``."""
    reasoning: str = "auto"
    """``on``, ``off`` or ``auto`` (on when the template can think)."""
    reasoning_effort: str = "default"
    reasoning_budget: int = -1
    reasoning_budget_message: str = ""
    reasoning_preserve: bool = True
    skip_chat_parsing: bool = False
    prefill_assistant: bool = True
    reverse_prompt: list[str] = field(default_factory=list)
    special: bool = False
    escape: bool = True
    spm_infill: bool = False

    # sampling defaults of requests
    samplers: list[str] = field(default_factory=lambda: list(DEFAULT_SAMPLERS))
    seed: int = DEFAULT_SEED
    temp: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    typical_p: float = 1.0
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: list[str] = field(default_factory=lambda: ["\n", ":", '"', "*"])
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    dynatemp_range: float = 0.0
    dynatemp_exp: float = 1.0
    mirostat: int = 0
    mirostat_lr: float = 0.1
    mirostat_ent: float = 5.0
    logit_bias: list[tuple[int, float]] = field(default_factory=list)
    ignore_eos: bool = False
    grammar: str = ""
    json_schema: str = ""
    backend_sampling: bool = False

    # cache and slots
    cache_prompt: bool = True
    cache_reuse: int = 0
    cache_ram: int = 8192
    ctx_checkpoints: int = 32
    checkpoint_min_step: int = 8192
    cache_idle_slots: bool = True
    slot_prompt_similarity: float = 0.1
    step_budget: float = STEP_BUDGET
    """How many times as long as a step that only decodes one with prompt rows may take."""
    step_patience: int = 120
    """Seconds after which a step counts as hung; 0 or less: it never does."""

    # speculation
    spec_type: list[str] = field(default_factory=lambda: ["none"])
    spec_draft_n_max: int = 3
    spec_draft_n_min: int = 0
    spec_draft_p_min: float = 0.0
    spec_draft_sampling: str = "greedy"
    spec_draft_backend_sampling: bool = True
    spec_draft_type_k: str = "f16"
    spec_draft_type_v: str = "f16"
    spec_draft_vocab: int = SpeculationSettings.draft_vocab
    spec_adaptive: bool | None = None
    """``None``: adaptive, but with synthetic acceptance not."""
    spec_synth_len: float = 0.0
    spec_synth_rates: list[float] = field(default_factory=list)
    spec_ngram_mod_n_min: int = 48
    spec_ngram_mod_n_max: int = 64
    spec_ngram_mod_n_match: int = 24
    spec_ngram_simple_size_n: int = 12
    spec_ngram_simple_size_m: int = 48
    spec_ngram_simple_min_hits: int = 1
    spec_ngram_map_k_size_n: int = 12
    spec_ngram_map_k_size_m: int = 48
    spec_ngram_map_k_min_hits: int = 1
    spec_ngram_map_k4v_size_n: int = 12
    spec_ngram_map_k4v_size_m: int = 48
    spec_ngram_map_k4v_min_hits: int = 1
    lookup_cache_static: str | None = None
    lookup_cache_dynamic: str | None = None

    # logging
    verbose: bool = False
    """``-v``: everything is logged and chat answers carry ``__verbose``."""
    verbosity: int = 3
    log_disable: bool = False
    log_file: str | None = None
    log_jsonl: bool = False
    log_colors: str = "auto"
    log_prefix: bool = True
    log_timestamps: bool = True

    # not from the command line
    slots_debug: bool = False
    """``LLAMA_SERVER_SLOTS_DEBUG=1``: ``/slots`` also shows texts and full parameters."""
    media_marker: str | None = None
    """``LLAMA_MEDIA_MARKER``; ``None`` = a random one."""
    predict_route: str | None = None
    """``AIP_PREDICT_ROUTE`` when ``AIP_MODE`` is ``PREDICTION``: many requests in one."""
    health_route: str | None = None
    """``AIP_HEALTH_ROUTE``, likewise."""
    user_set: set[str] = field(default_factory=set)
    """Names of the fields that the user set, by flag or environment (model metadata may fill the others)."""

    @property
    def n_slots(self) -> int:
        """Number of slots: ``--parallel``, or four when it is left to the server."""
        return self.parallel if self.parallel > 0 else 4

    @property
    def unified(self) -> bool:
        """Whether each slot may use the whole context."""
        return self.parallel <= 0 if self.kv_unified is None else self.kv_unified
