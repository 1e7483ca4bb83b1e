"""Options that have no effect here, that are refused, or that were removed long ago."""

from __future__ import annotations

from typing import Any

from pyjet.server import option_table_values as values
from pyjet.server.option_table_row import Option, Policy, Section, row
from pyjet.server.options import ServerOptions

_COMMON, _SPECULATIVE = Section.COMMON, Section.SPECULATIVE
_PLACEMENT = "thread placement is left to the operating system; use taskset"
_HINT = "it tunes a thread pool that this server does not have"
_DRAFT = "drafts come from the model itself, inside the main step"
_MEDIA = "this server is for text only"
_ROUTER = "there is one model per process"
_DENSE = "there are no experts to place"
_ONE_DEVICE = "the whole model is on one device"
_LOAD = "use --load-mode"


def _accept(names: str, reason: str, *, section: Section = Section.SPECIFIC, **settings: Any) -> Option:
    return row(names, settings.pop("help", f"no effect: {reason}"), policy=Policy.ACCEPT, reason=reason,
               section=section, **settings)  # fmt: skip


def _set_backend_sampling(options: ServerOptions, value: bool) -> None:
    options.backend_sampling = value


_BIT = values.int_in(0, 1)

ACCEPTED_OPTIONS: list[Option] = [
    _accept("-C --cpu-mask", _PLACEMENT, value="M", section=_COMMON),
    _accept("-Cr --cpu-range", _PLACEMENT, value="lo-hi", section=_COMMON),
    _accept("--cpu-strict", _PLACEMENT, value="<0|1>", convert=_BIT, section=_COMMON),
    _accept("-Cb --cpu-mask-batch", _PLACEMENT, value="M", section=_COMMON),
    _accept("-Crb --cpu-range-batch", _PLACEMENT, value="lo-hi", section=_COMMON),
    _accept("--cpu-strict-batch", _PLACEMENT, value="<0|1>", convert=_BIT, section=_COMMON),
    _accept("--prio", _HINT, value="N", convert=values.int_in(-1, 3), section=_COMMON),
    _accept("--prio-batch", _HINT, value="N", convert=values.int_in(0, 3), section=_COMMON),
    _accept("--poll", _HINT, value="<0...100>", convert=values.int_in(0, 100), section=_COMMON),
    _accept("--poll-batch", _HINT, value="<0|1>", convert=values.int_in(0, 100), section=_COMMON),
    _accept("--numa", _HINT, value="TYPE", env="NUMA", section=_COMMON,
            convert=values.one_of("distribute", "isolate", "numactl")),
    _accept("--perf", "timings are always measured", off="--no-perf", env="PERF", section=_COMMON),
    _accept("--swa-full", "there are no sliding-window layers", env="SWA_FULL", section=_COMMON),
    _accept("-kvo --kv-offload", "KV pages live where the engine runs", off="-nkvo --no-kv-offload",
            env="KV_OFFLOAD", section=_COMMON),
    _accept("--repack", "weights are always repacked once, without loss", off="-nr --no-repack", env="REPACK",
            section=_COMMON),
    _accept("--no-host", "weights are always repacked once, without loss", env="NO_HOST", section=_COMMON),
    _accept("--op-offload", "an operation never runs on two devices", off="--no-op-offload", section=_COMMON),
    _accept("-ot --override-tensor", _ONE_DEVICE, value="<tensor name pattern>=<buffer type>,...",
            env="OVERRIDE_TENSOR", section=_COMMON),
    _accept("-ncffn --n-cpu-ffn", _ONE_DEVICE, value="N", env="N_CPU_FFN", convert=values.int_in(0),
            section=_COMMON),
    _accept("-cmoe --cpu-moe", _DENSE, env="CPU_MOE", section=_COMMON),
    _accept("-ncmoe --n-cpu-moe", _DENSE, value="N", env="N_CPU_MOE", convert=values.int_in(0), section=_COMMON),
    _accept("-lzm --lazy-mode", "no tensor is read lazily", value="MODE", env="LAZY_MODE", section=_COMMON),
    _accept("-dt --defrag-thold", "a paged KV cache needs no defragmentation", value="N", env="DEFRAG_THOLD",
            convert=values.to_float, section=_COMMON),
    _accept("-bs --backend-sampling", "where sampling runs does not change results", env="BACKEND_SAMPLING",
            field="backend_sampling", apply=_set_backend_sampling, section=Section.SAMPLING),
    _accept("-cb --cont-batching", "batching is always continuous", off="-nocb --no-cont-batching",
            env="CONT_BATCHING"),
    _accept("--mmap", _LOAD, off="--no-mmap", section=_COMMON),
    _accept("--mlock", _LOAD, section=_COMMON),
    _accept("-dio --direct-io", _LOAD, off="-ndio --no-direct-io", section=_COMMON),
    _accept("--spec-draft-p-split --draft-p-split", _DRAFT, value="P", env="SPEC_DRAFT_P_SPLIT",
            convert=values.to_float, section=_SPECULATIVE),
    _accept("--spec-draft-threads -td --threads-draft", _DRAFT, value="N", convert=values.to_int,
            section=_SPECULATIVE),
    _accept("--spec-draft-threads-batch -tbd --threads-batch-draft", _DRAFT, value="N", convert=values.to_int,
            section=_SPECULATIVE),
    _accept("--spec-draft-cpu-mask -Cd --cpu-mask-draft", _DRAFT, value="M", section=_SPECULATIVE),
    _accept("--spec-draft-cpu-range -Crd --cpu-range-draft", _DRAFT, value="lo-hi", section=_SPECULATIVE),
    _accept("--spec-draft-cpu-strict --cpu-strict-draft", _DRAFT, value="<0|1>", convert=_BIT,
            section=_SPECULATIVE),
    _accept("--spec-draft-prio --prio-draft", _DRAFT, value="N", convert=values.int_in(0, 3),
            section=_SPECULATIVE),
    _accept("--spec-draft-poll --poll-draft", _DRAFT, value="<0|1>", convert=values.to_int,
            section=_SPECULATIVE),
    _accept("--spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft", _DRAFT, value="M", section=_SPECULATIVE),
    _accept("--spec-draft-cpu-strict-batch --cpu-strict-batch-draft", _DRAFT, value="<0|1>", convert=_BIT,
            section=_SPECULATIVE),
    _accept("--spec-draft-prio-batch --prio-batch-draft", _DRAFT, value="N", convert=values.int_in(0, 3),
            section=_SPECULATIVE),
    _accept("--spec-draft-poll-batch --poll-batch-draft", _DRAFT, value="<0|1>", convert=values.to_int,
            section=_SPECULATIVE),
    _accept("--spec-draft-override-tensor -otd --override-tensor-draft", _DRAFT, section=_SPECULATIVE,
            value="<tensor name pattern>=<buffer type>,..."),
    _accept("--spec-draft-cpu-moe -cmoed --cpu-moe-draft", _DRAFT, env="SPEC_DRAFT_CPU_MOE",
            section=_SPECULATIVE),
    _accept("--spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft", _DRAFT, value="N",
            env="SPEC_DRAFT_N_CPU_MOE", convert=values.int_in(0), section=_SPECULATIVE),
    _accept("--spec-draft-device -devd --device-draft", _DRAFT, value="<dev1,dev2,..>", section=_SPECULATIVE),
    _accept("--spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft", _DRAFT, value="N",
            env="N_GPU_LAYERS_DRAFT", convert=values.gpu_layers, section=_SPECULATIVE),
    _accept("--mmproj-auto", _MEDIA, off="--no-mmproj --no-mmproj-auto", env="MMPROJ_AUTO"),
    _accept("--mmproj-offload", _MEDIA, off="--no-mmproj-offload", env="MMPROJ_OFFLOAD"),
    _accept("-mmdev --mmproj-device", _MEDIA, value="DEVICE", env="$MTMD_BACKEND_DEVICE"),
    _accept("--image-min-tokens", _MEDIA, value="N", env="IMAGE_MIN_TOKENS", convert=values.to_int),
    _accept("--image-max-tokens", _MEDIA, value="N", env="IMAGE_MAX_TOKENS", convert=values.to_int),
    _accept("--mtmd-batch-max-tokens", _MEDIA, value="N", env="MTMD_BATCH_MAX_TOKENS", convert=values.to_int),
    _accept("--video-fps", _MEDIA, value="N", env="VIDEO_FPS", convert=values.to_float),
    _accept("--video-timestamp-interval", _MEDIA, value="N", env="VIDEO_TIMESTAMP_INTERVAL",
            convert=values.to_int),
    _accept("--video-ffmpeg-dir", _MEDIA, value="DIR", env="VIDEO_FFMPEG_DIR"),
    _accept("--media-path", _MEDIA, value="PATH"),
    _accept("--models-max", _ROUTER, value="N", env="MODELS_MAX", convert=values.int_in(0)),
    _accept("--models-autoload", _ROUTER, off="--no-models-autoload", env="MODELS_AUTOLOAD"),
    _accept("-hft --hf-token", "nothing is downloaded", value="TOKEN", env="$HF_TOKEN", section=_COMMON),
]  # fmt: skip

_NO_DOWNLOAD = "this server downloads nothing; download the file yourself and use -m FILE"
_PRESET = "it downloads a model of another family; use -m FILE"
_NO_RERANKING = "models with a classification head are not built; use a dedicated reranking server"
_CODE = "it lets clients run code on this machine, which is not part of an inference server; run an agent beside it"
_CONTROL = "control vectors are not supported; start without them"
_POSITIONS = "it would change the model's positions and so its answers; use the model's own settings, without it"
_ONE_MODEL = "there is no router; use -m FILE and start one process per model behind a proxy"
_NO_DRAFT_MODEL = "there is no separate draft model; use --spec-type draft-mtp or an ngram-* type"


def _refuse(names: str, reason: str, *, section: Section = Section.SPECIFIC, **settings: Any) -> Option:
    return row(names, f"refused: {reason}", policy=Policy.REFUSE, reason=reason, section=section, **settings)


def _neutral(names: str, env: str, value_name: str, *neutral: str) -> Option:
    """A rope option: values that change nothing are fine, others are refused."""

    def check(value: Any) -> str | None:
        return None if value in neutral else _POSITIONS

    return row(names, "only values that keep the model's own positions: " + ", ".join(neutral), value=value_name,
               env=env, unavailable=check, section=_COMMON, default="the model's own")  # fmt: skip


ROPE_OPTIONS: list[Option] = [
    _neutral("--rope-scaling", "ROPE_SCALING_TYPE", "{none,linear,yarn}", "none"),
    _neutral("--rope-scale", "ROPE_SCALE", "N", "1", "1.0"),
    row("--rope-freq-base", "base of the rotary positions; must equal the model's", value="N",
        env="ROPE_FREQ_BASE", field="rope_freq_base", convert=values.to_float, section=_COMMON,
        default="the model's own"),
    _neutral("--rope-freq-scale", "ROPE_FREQ_SCALE", "N", "1", "1.0"),
    _neutral("--yarn-orig-ctx", "YARN_ORIG_CTX", "N", "0"),
    _neutral("--yarn-ext-factor", "YARN_EXT_FACTOR", "N", "-1", "-1.0", "0", "0.0"),
    _neutral("--yarn-attn-factor", "YARN_ATTN_FACTOR", "N", "-1", "-1.0", "1", "1.0"),
    _neutral("--yarn-beta-slow", "YARN_BETA_SLOW", "N", "-1", "-1.0", "1", "1.0"),
    _neutral("--yarn-beta-fast", "YARN_BETA_FAST", "N", "-1", "-1.0", "32", "32.0"),
]  # fmt: skip

REFUSED_OPTIONS: list[Option] = [
    _refuse("-mm --mmproj", "this server is for text only; start without it", value="FILE", env="MMPROJ"),
    _refuse("-mmu --mmproj-url", "this server is for text only; start without it", value="URL", env="MMPROJ_URL"),
    _refuse("--rpc", "there is no distributed execution; run one server per host", value="SERVERS", env="RPC",
            section=_COMMON),
    _refuse("--models-dir", _ONE_MODEL, value="PATH", env="MODELS_DIR"),
    _refuse("--models-preset", _ONE_MODEL, value="PATH", env="MODELS_PRESET"),
    _refuse("-hf -hfr --hf-repo", _NO_DOWNLOAD, value="<user>/<model>[:quant]", env="HF_REPO", section=_COMMON),
    _refuse("-hff --hf-file", _NO_DOWNLOAD, value="FILE", env="HF_FILE", section=_COMMON),
    _refuse("-mu --model-url", _NO_DOWNLOAD, value="MODEL_URL", env="MODEL_URL", section=_COMMON),
    _refuse("-dr --docker-repo", _NO_DOWNLOAD, value="[<repo>/]<model>[:quant]", env="DOCKER_REPO",
            section=_COMMON),
    *(_refuse(name, _PRESET) for name in (
        "--embd-gemma-default", "--fim-qwen-1.5b-default", "--fim-qwen-3b-default", "--fim-qwen-7b-default",
        "--fim-qwen-7b-spec", "--fim-qwen-14b-spec", "--fim-qwen-30b-default", "--gpt-oss-20b-default",
        "--gpt-oss-120b-default", "--vision-gemma-4b-default", "--vision-gemma-12b-default")),
    _refuse("--rerank --reranking", _NO_RERANKING, env="RERANKING"),
    _refuse("--spec-draft-model -md --model-draft", _NO_DRAFT_MODEL, value="FNAME", env="SPEC_DRAFT_MODEL",
            section=_SPECULATIVE),
    _refuse("--spec-draft-hf -hfd -hfrd --hf-repo-draft", _NO_DRAFT_MODEL, value="<user>/<model>[:quant]",
            env="SPEC_DRAFT_HF_REPO", section=_SPECULATIVE),
    _refuse("--control-vector", _CONTROL, value="FNAME", section=_COMMON),
    _refuse("--control-vector-scaled", _CONTROL, value="FNAME:SCALE,...", section=_COMMON),
    _refuse("--control-vector-layer-range", _CONTROL, value="START END", n_values=2, section=_COMMON),
    _refuse("--tools", _CODE, value="TOOL1,TOOL2,...", env="TOOLS"),
    _refuse("--tools-runtime", _CODE, value="OPTION", env="TOOLS_RUNTIME"),
    _refuse("-ag --agent", _CODE, off="-no-ag --no-agent", env="AGENT"),
    _refuse("--mcp-servers-config", _CODE, value="PATH", env="MCP_SERVERS_CONFIG"),
    _refuse("--mcp-servers-json", _CODE, value="JSON", env="MCP_SERVERS_JSON"),
    _refuse("--ui-mcp-proxy --webui-mcp-proxy", _CODE, off="--no-ui-mcp-proxy --no-webui-mcp-proxy",
            env="UI_MCP_PROXY"),
]  # fmt: skip


def _removed(names: str, successor: str, env: str = "") -> Option:
    return row(names, f"removed: use {successor}", value="N", env=env, policy=Policy.REMOVED,
               section=Section.SPECULATIVE, reason=f"the argument has been removed. use {successor}")  # fmt: skip


REMOVED_OPTIONS: list[Option] = [
    _removed("--draft --draft-n --draft-max", "--spec-draft-n-max or --spec-ngram-mod-n-max", "DRAFT_MAX"),
    _removed("--draft-min --draft-n-min", "--spec-draft-n-min or --spec-ngram-mod-n-min", "DRAFT_MIN"),
    _removed("--spec-ngram-size-n", "the respective --spec-ngram-*-size-n or --spec-ngram-mod-n-match"),
    _removed("--spec-ngram-size-m", "the respective --spec-ngram-*-size-m"),
    _removed("--spec-ngram-min-hits", "the respective --spec-ngram-*-min-hits"),
]  # fmt: skip
