"""How class B tests are bent so that they fit any model."""

from __future__ import annotations

from typing import Any

# patterns that describe the prose of one particular model (everything else passed to match_regex stays strict)
PROSE = {
    "But she couldn't", "(Suddenly)+|\\{ \" Sarax.", "(Suddenly)+", "^ blue", "(Aside|she|felter|alonger)+",
    "Whillicter",
    "(\\{|John)+", "[ -3000 ]", "(going|bed)+", "(princesses|everyone|kids|Anna|forest)+", "(little|girl)+",
    "(Whiskers|Flana)+", "(Jack|said)+", "(wise|kind|owl|answer)+", "(Ann|small|shiny|Daddy|Jimmy)+",
    "(Dad|excited|park|Jimmy)+",
}

# what else is bent for class B, per test function
#   params: parametrize arguments that hold token counts      consts: literals in the body that hold token counts
#   last_const: the literal in the last such assert            assign: local variables that hold a token count
#   tokens: a local variable that must be the token count of another one, asked from the server
#   bos: "<s> " literals      eos: add --ignore-eos
#   router: give the router preset the main model      min_tokens: raise a max_tokens that fits one tokenizer only
#   prompt_tokens: the prompt gets as many words as make so many tokens
#   repeat, replace: make a text long enough for a tokenizer with larger tokens
B_RULES: dict[str, dict[str, Any]] = {
    "test_chat_completion": {"params": {"n_prompt": "="}, "eos": 1},
    "test_chat_completion_cached_tokens": {"consts": {77: "=", 76: ">", 51: ">", 47: ">"}},
    "test_chat_completion_stream": {"params": {"n_prompt": "="}, "eos": 1},
    "test_chat_completion_with_openai_library": {"eos": 1},
    "test_chat_template": {"bos": 1},
    "test_completion_with_response_format": {"min_tokens": 24},
    "test_completion_with_json_schema": {"min_tokens": 24},
    "test_return_progress": {"params": {"batch_count": "?"}},
    "test_chat_completions_multiple_choices": {"eos": 1},
    "test_completion": {"params": {"n_prompt": "="}, "eos": 1},
    "test_completion_stream": {"params": {"n_prompt": "="}, "eos": 1},
    "test_completion_with_openai_library": {"eos": 1},
    "test_completion_stream_with_openai_library": {"eos": 1},
    "test_completion_response_fields": {"bos": 1, "eos": 1},
    "test_completion_parallel_slots": {"eos": 1},
    "test_completion_unified": {"eos": 1},
    "test_n_probs": {"eos": 1},
    "test_n_probs_post_sampling": {"eos": 1},
    "test_n_probs_post_backend_sampling": {"eos": 1},
    "test_completion_prompt_cache": {"tokens": {"n_prompt": "prompt"}, "eos": 1},
    "test_nocache_long_input_prompt": {"replace": {32: 128}},
    "test_ctx_shift_enabled": {"consts": {226: "="}, "prompt_tokens": 226, "eos": 1},
    "test_ctx_shift_disabled_short_prompt": {"params": {"n_token_output": "="}, "eos": 1},
    "test_ctx_shift_disabled_stream": {"eos": 1},
    "test_ctx_shift_disabled_long_prompt": {"repeat": {"LONG_TEXT": 4}},
    "test_metrics_generation_rate_excludes_first_token": {"eos": 1},
    "test_cors_origins_localhost_reflects": {"router": 1},
    "test_cors_origins_localhost_rejects": {"router": 1},
    "test_slot_save_restore": {"consts": {21: "=", 84: "=", 6: "<"}, "last_const": {1: "<"}, "eos": 1},
    "test_slot_erase": {"consts": {21: "="}, "eos": 1},
    "test_tokenize_with_bos": {"assign": {"bosId": "="}},
    "test_with_and_without_draft": {"eos": 1},
    "test_different_draft_min_draft_max": {"eos": 1},
    "test_synth_is_deterministic": {"eos": 1},
    "test_synth_ignores_target_tokens": {"eos": 1},
    "test_slot_ctx_not_exceeded": {"prompt_tokens": 248, "eos": 1},
    "test_with_ctx_shift": {"prompt_tokens": 248, "eos": 1},
    "test_multi_requests_parallel": {"eos": 1},
}
