"""Options for the HTTP server, its endpoints, the caches and the log."""

from __future__ import annotations

import os
from typing import Any

from pyjet.server import option_table_values as values
from pyjet.server.option_table_row import Option, Section, row
from pyjet.server.options import ServerOptions
from pyjet.server.profiles import Profile, merge_profiles, profile_option, profiles_file

_COMMON = Section.COMMON
_NO_RANK = "models with a classification head are not built: use none, mean, cls or last"


def _add_keys(options: ServerOptions, keys: list[str]) -> None:
    options.api_keys.extend(key for key in keys if key not in options.api_keys)


def _static_directory(path: str) -> str:
    if path and not os.path.isdir(path):
        raise ValueError(f"not a directory: {path}")
    return path


def _aliases(text: str) -> list[str]:
    return sorted(set(values.comma_list(text)))


def _hosts(text: str) -> list[str]:
    hosts = values.comma_list(text)
    if not hosts:
        raise ValueError("expected at least one address")
    return hosts


def _ping_interval(text: str) -> int:
    return values.int_in(-1)(text)


def _sleep_seconds(text: str) -> int:
    seconds = values.to_int(text)
    if seconds == 0 or seconds < -1:
        raise ValueError("invalid value: must be greater than 0 or -1")
    return seconds


def _idle_slots(value: Any) -> str | None:
    return None if value else "prompts of idle slots move to host memory when the pool needs their pages"


def _add_profiles(options: ServerOptions, profiles: list[Profile]) -> None:
    options.profiles = merge_profiles(options.profiles, profiles)


def _verbosity(options: ServerOptions, value: int) -> None:
    options.verbosity = value


def _verbose(options: ServerOptions, value: bool) -> None:
    options.verbose = value
    options.verbosity = 0x7FFFFFFF


SERVER_OPTIONS: list[Option] = [
    row("-a --alias", "names of the model for clients, separated by commas", field="alias", value="STRING",
        env="ALIAS", convert=_aliases, default="the model's path"),
    row("--alias-profile", "a further name of the model with limits for the requests that use it: ctx (tokens of "
        "prompt and answer), max_tokens (of an answer), priority (higher runs first); may be repeated",
        field="profiles", value="NAME:ctx=N,max_tokens=N,priority=N", convert=profile_option, apply=_add_profiles,
        accumulates=True, default="none"),
    row("--alias-profiles", "TOML file with such profiles: a table [NAME] for each, with the same keys",
        field="profiles", value="FNAME", convert=profiles_file, apply=_add_profiles, accumulates=True, default="none"),
    row("--tags", "tags of the model, separated by commas, for clients to read", field="tags", value="STRING",
        env="TAGS", convert=values.comma_list, default="none"),
    row("--host", "addresses to listen on, separated by commas; an entry that ends in .sock is a UNIX socket",
        field="host", value="HOST", env="HOST", convert=_hosts, default="127.0.0.1"),
    row("--port", "port to listen on; 0: any free one", field="port", value="PORT", env="PORT",
        convert=values.int_in(0, 65535)),
    row("--reuse-port", "let several servers share the port (SO_REUSEPORT)", field="reuse_port", env="REUSE_PORT"),
    row("--path", "directory of static files, instead of the built-in page", field="path", value="PATH",
        env="STATIC_PATH", convert=_static_directory, default="none"),
    row("--api-prefix", "path prefix of every route, without a slash at the end", field="api_prefix",
        value="PREFIX", env="API_PREFIX", convert=values.api_prefix, default="none"),
    row("--ui --webui", "built-in web page", off="--no-ui --no-webui", field="ui", env="UI"),
    row("--ui-config --webui-config", "JSON object with settings for the page", field="ui_config", value="JSON",
        env="UI_CONFIG", convert=values.json_object, default="{}"),
    row("--ui-config-file --webui-config-file", "file with settings for the page", field="ui_config",
        value="PATH", env="UI_CONFIG_FILE", convert=values.json_object_file, default="none"),
    row("--api-key", "keys that clients may use, separated by commas", field="api_keys", value="KEY",
        env="$LLAMA_API_KEY", convert=values.comma_list, apply=_add_keys, accumulates=True, default="none"),
    row("--api-key-file", "file with one key per line; lines that start with # are comments", field="api_keys",
        value="FNAME", env="API_KEY_FILE", convert=values.key_file, apply=_add_keys, default="none"),
    row("--ssl-key-file", "private key for TLS (PEM, without a password); needs --ssl-cert-file, then all is HTTPS",
        field="ssl_key_file", value="FNAME", env="SSL_KEY_FILE", default="none"),
    row("--ssl-cert-file", "certificate for TLS (PEM, with the chain behind it); needs --ssl-key-file",
        field="ssl_cert_file", value="FNAME", env="SSL_CERT_FILE", default="none"),
    row("--cors-origins", "origins that browsers may call from; localhost: only pages of this machine",
        field="cors_origins", value="ORIGINS", env="CORS_ORIGINS"),
    row("--cors-methods", "methods allowed to browsers", field="cors_methods", value="METHODS",
        env="CORS_METHODS"),
    row("--cors-headers", "headers allowed to browsers", field="cors_headers", value="HEADERS",
        env="CORS_HEADERS"),
    row("--cors-credentials", "let browsers send credentials", off="--no-cors-credentials",
        field="cors_credentials", env="CORS_CREDENTIALS"),
    row("-to --timeout", "seconds after which a silent connection is closed", field="timeout", value="N",
        env="TIMEOUT", convert=values.int_in(1)),
    row("--threads-http", "threads for HTTP requests; 0 or less: chosen by the server", field="threads_http",
        value="N", env="THREADS_HTTP", convert=values.to_int),
    row("--sse-ping-interval", "seconds between comment lines on a silent stream; -1: none",
        field="sse_ping_interval", value="N", env="SSE_PING_INTERVAL", convert=_ping_interval),
    row("--slots", "GET /slots", off="--no-slots", field="slots", env="ENDPOINT_SLOTS"),
    row("--props", "POST /props", field="props", env="ENDPOINT_PROPS"),
    row("--metrics", "GET /metrics in the Prometheus format", field="metrics", env="ENDPOINT_METRICS"),
    row("--slot-save-path", "directory for saved slots; POST /slots/{id}?action=save, restore or erase needs it",
        field="slot_save_path", value="PATH", convert=values.existing_directory, default="none"),
    row("--sleep-idle-seconds", "unload the model after so many idle seconds, load it again when it is needed; "
        "-1: never", field="sleep_idle_seconds", value="SECONDS", convert=_sleep_seconds),
    row("--embedding --embeddings", "POST /embeddings and /v1/embeddings; text is generated as before",
        field="embeddings", env="EMBEDDINGS"),
    row("--pooling", "what makes the embedding of a text: none (a vector per token), mean, cls (of the first token) "
        "or last", field="pooling", value="{none,mean,cls,last,rank}", env="POOLING",
        convert=values.one_of("none", "mean", "cls", "last", "rank"), default="the model's own",
        unavailable=lambda value: _NO_RANK if value == "rank" else None),
    row("--embd-normalize", "length of embeddings: -1 as they are, 0 largest value 32760, 1 taxicab, 2 euclidean, "
        "p-norm above", field="embd_normalize", value="N", convert=values.to_int),
    row("--log-prompts-dir", "directory that gets one file per request with its prompt, for debugging; it is made when "
        "missing", field="log_prompts_dir", value="PATH", default="none"),
]  # fmt: skip

CACHE_OPTIONS: list[Option] = [
    row("--cache-prompt", "reuse the computed part of earlier prompts", off="--no-cache-prompt",
        field="cache_prompt", env="CACHE_PROMPT"),
    row("--cache-reuse", "smallest chunk that is reused by shifting the cache; never done here: recurrent models "
        "cannot, and a shifted cache gives other numbers", field="cache_reuse", value="N", env="CACHE_REUSE",
        convert=values.int_in(0),
        ineffective=lambda value: "recurrent models cannot shift their cache; 0 is used" if value else None),
    row("-cram --cache-ram", "host memory for prompts, MiB; -1: no limit, 0: none", field="cache_ram", value="N",
        env="CACHE_RAM", convert=values.int_in(-1)),
    row("-ctxcp --ctx-checkpoints --swa-checkpoints", "checkpoints of the recurrent state per slot, kept by all slots "
        "together", field="ctx_checkpoints", value="N", env="CTX_CHECKPOINTS", convert=values.int_in(0)),
    row("-cms --checkpoint-min-step", "tokens between two checkpoints inside a long prompt; 0: at every message",
        field="checkpoint_min_step", value="N", env="CHECKPOINT_MIN_SPACING_NT", convert=values.int_in(0)),
    row("--cache-idle-slots", "prompts of idle slots move to host memory when the pool needs their pages, with either "
        "spelling", off="--no-cache-idle-slots", field="cache_idle_slots", env="CACHE_IDLE_SLOTS",
        ineffective=_idle_slots),
    row("-sps --slot-prompt-similarity", "share of a prompt that a slot must hold to be chosen for it",
        field="slot_prompt_similarity", value="SIMILARITY", convert=values.to_float),
]  # fmt: skip

LOG_OPTIONS: list[Option] = [
    row("--log-disable", "print nothing", field="log_disable", section=_COMMON),
    row("--log-file", "file that gets the log as well", field="log_file", value="FNAME", env="LOG_FILE",
        default="none", section=_COMMON),
    row("--log-jsonl", "one JSON object per line on stdout", off="--no-log-jsonl", field="log_jsonl",
        env="LOG_JSONL", section=_COMMON),
    row("--log-colors", "on, off or auto (on a terminal)", field="log_colors", value="[on|off|auto]",
        env="LOG_COLORS", convert=values.on_off_auto, section=_COMMON),
    row("-v --verbose --log-verbose", "log everything; chat answers carry __verbose", field="verbose",
        apply=_verbose, section=_COMMON),
    row("-lv --verbosity --log-verbosity", "0: plain output, 1: errors, 2: warnings, 3: info, 4: trace, 5: debug",
        field="verbosity", value="N", env="LOG_VERBOSITY", convert=values.to_int, apply=_verbosity,
        section=_COMMON),
    row("--log-prefix", "level in front of each message", off="--no-log-prefix", field="log_prefix",
        env="LOG_PREFIX", section=_COMMON),
    row("--log-timestamps", "time since the start in front of each message", off="--no-log-timestamps",
        field="log_timestamps", env="LOG_TIMESTAMPS", section=_COMMON),
]  # fmt: skip
