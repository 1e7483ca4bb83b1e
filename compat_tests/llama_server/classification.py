"""Which tests of the suite can be held against which kind of model.

Class A tests run unchanged. Class B tests compare with the words or token counts of one particular
model and are bent (see rules.py). Class C tests are out of scope and never run.
"""

from __future__ import annotations

# file -> default class ("*"), then exceptions by test function; the text after the letter is the reason
CLASSES: dict[str, dict[str, str]] = {
    "test_basic.py": {
        "*": "A",
        "test_load_split_model": "B text: prose of the split stories15M; the stand-in is one file",
    },
    "test_chat_completion.py": {
        "*": "A",
        "test_chat_completion": "B text, counts, eos",
        "test_chat_completion_cached_tokens": "B counts",
        "test_chat_completion_stream": "B text, counts, eos",
        "test_chat_completion_with_openai_library": "B text, eos",
        "test_chat_template": "B bos",
        "test_completion_with_response_format": "B text, counts",
        "test_completion_with_json_schema": "B budget: the schema's answer must fit in 6 tokens",
        "test_logit_bias": "B text: a biased token may still occur inside words of another tokenizer",
        "test_return_progress": "B counts: number of 64-token batches",
        "test_chat_completions_multiple_choices": "B eos",
    },
    "test_compat_anthropic.py": {
        "*": "A",
        "test_anthropic_vision_base64_with_multimodal_model": "C vision model",
        "test_anthropic_thinking_with_reasoning_model": "C slow: downloads a 7B model",
    },
    "test_compat_gcp.py": {"*": "A"},
    "test_compat_oai_responses.py": {
        "*": "A",
        "test_responses_with_openai_library": "B text",
        "test_responses_stream_with_openai_library": "B text",
    },
    "test_completion.py": {
        "*": "A",
        "test_completion": "B text, counts, eos",
        "test_completion_stream": "B text, counts, eos",
        "test_completion_with_openai_library": "B text, eos",
        "test_completion_stream_with_openai_library": "B text, eos",
        "test_completion_stream_with_openai_library_stops": "C slow: downloads a 3.8B model",
        "test_cache_vs_nocache_prompt": "C skipped by the suite itself",
        "test_nocache_long_input_prompt": "B size: 32 repetitions must exceed the slot's 256 tokens",
        "test_completion_response_fields": "B bos, eos",
        "test_completion_parallel_slots": "B eos: every request must still run when /slots is read",
        "test_completion_unified": "B eos",
        "test_n_probs": "B eos",
        "test_n_probs_post_sampling": "B eos",
        "test_n_probs_post_backend_sampling": "B eos; backend_sampling must be accepted, may be the same code path",
        "test_logit_bias": "B text: a biased token may still occur inside words of another tokenizer",
        "test_completion_prompt_cache": "B counts, eos",
    },
    "test_ctx_shift.py": {
        "*": "A",
        "test_ctx_shift_enabled": "B size, counts, eos: the prompt must nearly fill the slot",
        "test_ctx_shift_disabled_short_prompt": "B counts, eos",
        "test_ctx_shift_disabled_stream": "B eos: the text must reach the end of the slot",
        "test_ctx_shift_disabled_long_prompt": "B size: the text must exceed the slot's 256 tokens",
    },
    "test_embedding.py": {"*": "C embedding-only model (BERT)"},
    "test_ignore_eos.py": {"*": "A"},
    "test_infill.py": {
        "*": "A",
        "test_infill_without_input_extra": "B text",
        "test_infill_with_input_extra": "B text",
        "test_with_qwen_model": "C slow: downloads a 1.5B model",
    },
    "test_kv_keep_only_active.py": {"*": "A"},
    "test_lora.py": {"*": "C LoRA adapters"},
    "test_mcp_servers.py": {"*": "C MCP servers (and router mode)"},
    "test_metrics.py": {
        "*": "A",
        "test_metrics_predicted_total_matches_requests": "A",
        "test_metrics_generation_rate_excludes_first_token": "B eos",
        "test_metrics_embedding_prompt_is_counted": "C embedding-only model (BERT)",
    },
    "test_proxy.py": {
        "*": "C MCP CORS proxy",
        "test_mcp_no_proxy": "A",
    },
    "test_rerank.py": {"*": "C reranker model"},
    "test_router.py": {"*": "C router mode"},
    "test_security.py": {
        "*": "A",
        "test_cors_origins_localhost_reflects": "B router",
        "test_cors_origins_localhost_rejects": "B router",
        "test_cors_origins_defaults_to_localhost_with_tools_enabled": "C built-in agent tools (and router mode)",
        "test_cors_proxy_only_forwards_explicit_proxy_headers": "C MCP CORS proxy",
        "test_local_media_file": "C vision model",
    },
    "test_sleep.py": {"*": "A"},
    "test_slot_save.py": {
        "*": "C vision model",
        "test_slot_save_restore": "B text, counts, eos",
        "test_slot_restore_legacy_token_list": "C rewrites bytes of llama.cpp's own state file",
        "test_slot_erase": "B text, counts, eos",
    },
    "test_speculative.py": {
        "*": "B draft: a stand-in draft model (or draft-mtp) and eos",
        "test_with_ctx_shift": "B draft, size, eos: the prompt must nearly fill the slot",
        "test_slot_ctx_not_exceeded": "B draft, size, eos: the prompt must nearly fill the slot",
        "test_multi_requests_parallel": "B draft, text, eos",
    },
    "test_stream.py": {"*": "C router mode with a vision model (the /v1/stream routes themselves are in scope)"},
    "test_systemone.py": {"*": "C decision models"},
    "test_template.py": {"*": "A"},
    "test_tokenize.py": {
        "*": "A",
        "test_tokenize_with_bos": "B counts: the BOS id, or none",
    },
    "test_tool_call.py": {
        "*": "C slow: downloads real models",
        "test_completion_without_tool_call_fast": "A",
    },
    "test_tools_builtin.py": {"*": "C built-in agent tools (and router mode)"},
    "test_vision_api.py": {"*": "C vision model"},
}


def classify(filename: str, function: str) -> tuple[str, str]:
    """(class, reason) of one test function; an unknown file or function is class A, so that new tests are noticed."""
    rules = CLASSES.get(filename, {})
    text = rules.get(function, rules.get("*", "A"))
    return text[0], text[2:]
