"""Every option that llama-server has: known here, with the same spellings, values and variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyjet.server.help_text import help_text
from pyjet.server.option_parser import OptionError, parse
from pyjet.server.option_table import BY_SPELLING, OPTIONS
from pyjet.server.option_table_row import Option, Policy
from pyjet.server.options import ServerOptions


def peer_options() -> list[tuple[list[str], str, str]]:
    """(spellings, value, environment variable) of each option."""
    lines = Path(__file__).with_name("llama_server_options.txt").read_text().splitlines()[1:]
    rows = []
    for line in lines:
        names, rest = line.split(" |", 1)
        value, env = rest.rsplit("|", 1)  # the value itself may hold a bar
        rows.append((names.split(), value.strip(), env.strip()))
    return rows


PEER = peer_options()
OURS = {
    "--cpu-isa", "--spec-draft-sampling", "--mmap", "--mlock", "-dio", "--agents", "--step-budget", "--alias-profile",
    "--alias-profiles", "--step-patience", "--spec-draft-vocab", "--spec-adaptive",
}  # fmt: skip

SAMPLES = {
    "--load-mode": "mmap",
    "--cache-type-k": "q8_0",
    "--cache-type-v": "q8_0",
    "--flash-attn": "on",
    "--fit": "off",
    "--split-mode": "none",
    "--override-kv": "a.b=int:3",
    "--reasoning-format": "none",
    "--reasoning": "off",
    "--log-colors": "off",
    "--ui-config": '{"a":1}',
    "--chat-template-kwargs": '{"a":1}',
    "--logit-bias": "15-1.5",
    "--cpu-isa": "avx2",
    "--numa": "isolate",
    "--spec-draft-sampling": "probabilistic",
    "--spec-draft-type-k": "f16",
    "--spec-draft-type-v": "f16",
    "--spec-type": "ngram-simple",
    "--adaptive-decay": "0.5",
    "--control-vector-layer-range": "1 2",
    "--samplers": "top_k;temp",
    "--sampler-seq": "kt",
    "--lora": "",
    "--lora-scaled": "",
    "--pooling": "mean",
    "--rope-scaling": "none",
    "--api-prefix": "/api",
    "--spec-draft-ngl": "all",
    "--path": ".",
    "--yarn-orig-ctx": "0",
    "--yarn-ext-factor": "0",
    "--yarn-beta-fast": "32",
    "--reasoning-budget": "-1",
    "--sleep-idle-seconds": "-1",
    "--grammar": 'root ::= "a"',
    "--json-schema": "{}",
    "--step-budget": "2",
    "--slot-save-path": ".",
    "--alias-profile": "planner:ctx=1000",
}
NEEDS_FILE = {
    "--ui-config-file", "--api-key-file", "--chat-template-file", "--grammar-file", "--json-schema-file",
    "--alias-profiles",
}  # fmt: skip
PARTNERS = {"--ssl-key-file": ["--ssl-cert-file", "c.pem"], "--ssl-cert-file": ["--ssl-key-file", "k.pem"]}
UNAVAILABLE = {  # options whose every useful value needs something that is not built
    "--lookup-cache-static": "x",
    "--lookup-cache-dynamic": "x",
    "--lora": "a.gguf",
    "--lora-scaled": "a.gguf:0.5",
    "--spec-type": "draft-simple",
    "--cache-type-k": "q4_0",
    "--cache-type-v": "bf16",
    "--split-mode": "row",
    "--tensor-split": "1,1",
    "--rope-scale": "2",
    "--parallel": "65",
    "--agents": "256",
    "--rope-scaling": "yarn",
    "--spec-synth-len": "2",
    "--spec-synth-rates": "0.5",
}


def sample(option: Option) -> list[str]:
    """Values that the option takes, harmless ones where others are refused."""
    text = SAMPLES.get(option.long_name, "1")
    return text.split(" ") if option.n_values > 1 else [text][: option.n_values]


@pytest.mark.parametrize(("names", "value", "env"), PEER, ids=lambda item: item[-1] if isinstance(item, list) else "")
def test_the_peers_options_are_known(names: list[str], value: str, env: str) -> None:
    option = BY_SPELLING[names[0]]
    assert set(option.spellings) == set(names)
    assert option.takes_value == bool(value)
    assert (env in option.env) if env else not option.env


def peer_sections() -> dict[str, str]:
    """Heading of the help page by an option's first spelling."""
    found, heading = {}, ""
    for line in Path(__file__).with_name("llama_server_sections.txt").read_text().splitlines()[1:]:
        if line.startswith("["):
            heading = line.strip("[]")
        else:
            found.update(dict.fromkeys(line.split(), heading))
    return found


def test_the_help_has_the_peers_sections() -> None:
    sections = peer_sections()
    assert set(sections) == {names[0] for names, _, _ in PEER}
    ours = {name: BY_SPELLING[name].section.value for name in sections}
    assert {name: section for name, section in ours.items() if section != sections[name]} == {}


def test_nothing_else_is_known_but_our_own() -> None:
    peer = {name for names, _, _ in PEER for name in names}
    assert {option.spellings[0] for option in OPTIONS if not peer & set(option.spellings)} == OURS


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.long_name)
def test_every_option_does_what_its_class_says(option: Option, tmp_path: Path) -> None:
    values = sample(option)
    if option.long_name in NEEDS_FILE:
        path = tmp_path / "file"
        path.write_text("{}" if "ui" in option.long_name else "")
        values = [str(path)]
    values += PARTNERS.get(option.long_name, [])
    for name in option.spellings:
        switches_off = name in option.off_names
        if option.policy in (Policy.REFUSE, Policy.REMOVED) and not switches_off:
            with pytest.raises(OptionError, match="error while handling argument"):
                parse([name, *values], {})
            continue
        if option.long_name in UNAVAILABLE.keys() - SAMPLES.keys() and not switches_off:
            continue  # see the next test
        line = parse([name, *values], {})
        has_warning = any(f"{name} has no effect" in warning for warning in line.warnings)
        assert has_warning == (option.policy is Policy.ACCEPT) or option.ineffective is not None
        if option.field and not option.action:
            assert option.field in line.options.user_set or option.policy is not Policy.MUST


@pytest.mark.parametrize(("name", "value"), UNAVAILABLE.items())
def test_what_is_not_built_is_refused_with_a_reason(name: str, value: str | None) -> None:
    with pytest.raises(OptionError) as failure:
        parse([name] if value is None else [name, value], {})
    text = str(failure.value)
    assert text.startswith(f'error while handling argument "{name}": ')
    assert len(text.splitlines()[0]) > len(name) + 50, "the message gives a reason"


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.policy is Policy.REFUSE], ids=lambda o: o.long_name)
def test_refusals_name_an_alternative(option: Option) -> None:
    assert any(word in option.reason for word in ("use ", "start without", "run ")), option.reason


def test_help_lists_every_spelling_and_variable() -> None:
    text = help_text()
    for option in OPTIONS:
        assert ", ".join(option.spellings) in text
        assert all(name in text for name in option.env[:1])
    headings = [line for line in text.splitlines() if line.startswith("-----")]
    assert [heading.strip("- ") for heading in headings] == [
        "common params",
        "sampling params",
        "speculative params",
        "example-specific params",
    ]


def test_fields_exist() -> None:
    defaults = ServerOptions()
    for option in OPTIONS:
        assert not option.field or hasattr(defaults, option.field), option.long_name


# what llama-server does without the option; the fields of options that add up are lists
DEFAULTS: dict[str, object] = {
    "--ctx-size": 0, "--parallel": -1, "--kv-unified": None, "--batch-size": 2048, "--ubatch-size": 512,
    "--n-predict": -1, "--keep": 0, "--cache-type-k": "f16", "--cache-type-v": "f16", "--flash-attn": "auto",
    "--gpu-layers": "auto", "--split-mode": "layer", "--main-gpu": 0, "--fit": True, "--fit-target": [1024],
    "--fit-ctx": 4096, "--threads": -1, "--load-mode": "auto", "--check-tensors": False, "--warmup": True,
    "--context-shift": False, "--host": ["127.0.0.1"], "--port": 8080, "--reuse-port": False, "--timeout": 3600,
    "--threads-http": -1, "--sse-ping-interval": 30, "--api-prefix": "", "--path": None, "--api-key": [],
    "--ssl-key-file": None, "--ssl-cert-file": None, "--cors-origins": "*",
    "--cors-methods": "GET, POST, DELETE, OPTIONS", "--cors-headers": "*", "--cors-credentials": True, "--tags": [],
    "--slots": True, "--props": False, "--metrics": False, "--slot-save-path": None, "--ui": True, "--ui-config": {},
    "--sleep-idle-seconds": -1, "--log-prompts-dir": None, "--offline": False, "--jinja": True,
    "--chat-template": None, "--chat-template-kwargs": {}, "--reasoning-format": "deepseek", "--reasoning": "auto",
    "--reasoning-effort": "default", "--reasoning-budget": -1, "--reasoning-budget-message": "",
    "--reasoning-preserve": True, "--skip-chat-parsing": False, "--prefill-assistant": True, "--reverse-prompt": [],
    "--special": False, "--escape": True, "--spm-infill": False, "--seed": 4294967295, "--temp": 0.8, "--top-k": 40,
    "--top-p": 0.95, "--min-p": 0.05, "--top-nsigma": -1.0, "--xtc-probability": 0.0, "--xtc-threshold": 0.1,
    "--typical": 1.0, "--repeat-last-n": 64, "--repeat-penalty": 1.0, "--presence-penalty": 0.0,
    "--frequency-penalty": 0.0, "--dry-multiplier": 0.0, "--dry-base": 1.75, "--dry-allowed-length": 2,
    "--dry-penalty-last-n": 64, "--dry-sequence-breaker": ["\n", ":", '"', "*"], "--adaptive-target": -1.0,
    "--adaptive-decay": 0.9, "--dynatemp-range": 0.0, "--dynatemp-exp": 1.0, "--mirostat": 0, "--mirostat-lr": 0.1,
    "--mirostat-ent": 5.0, "--logit-bias": [], "--ignore-eos": False, "--grammar": "", "--cache-prompt": True,
    "--cache-reuse": 0, "--cache-ram": 8192, "--ctx-checkpoints": 32, "--checkpoint-min-step": 8192,
    "--cache-idle-slots": True, "--slot-prompt-similarity": 0.1, "--spec-type": ["none"], "--spec-draft-n-max": 3,
    "--spec-draft-n-min": 0, "--spec-draft-p-min": 0.0, "--spec-draft-sampling": "greedy",
    "--spec-draft-backend-sampling": True, "--spec-ngram-mod-n-min": 48, "--spec-ngram-mod-n-max": 64,
    "--spec-ngram-mod-n-match": 24, "--verbose": False, "--verbosity": 3, "--log-disable": False, "--log-file": None,
    "--log-jsonl": False, "--log-colors": "auto", "--log-prefix": True, "--log-timestamps": True,
    "--backend-sampling": False, "--embedding": False, "--pooling": None, "--embd-normalize": 2,
}  # fmt: skip
SAMPLERS = "penalties dry top_n_sigma top_k typ_p top_p min_p xtc temperature".split()


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_the_peers(name: str) -> None:
    value = getattr(parse([], {}).options, BY_SPELLING[name].field)
    assert value == DEFAULTS[name] and type(value) is type(DEFAULTS[name])


def test_every_option_with_an_effect_has_a_default_here() -> None:
    """All that hold a value, but for those that are pyjet's own or name files, models and lists of samplers."""
    others = {
        "--model", "--alias", "--device", "--tensor-split", "--override-kv", "--lora", "--lora-scaled", "--samplers",
        "--sampler-seq", "--kv-unified-per-slot", "--threads-batch", "--rope-freq-base", "--json-schema",
        "--json-schema-file", "--lora-init-without-apply", "--lookup-cache-static", "--lookup-cache-dynamic",
    }  # fmt: skip
    fields = {BY_SPELLING[name].field for name in DEFAULTS}
    missing = {option.long_name for option in OPTIONS if option.field and option.policy is Policy.MUST
               and option.field not in fields and not option.long_name.startswith("--spec-")}  # fmt: skip
    assert missing - others - OURS == set()
    assert parse([], {}).options.samplers == SAMPLERS
