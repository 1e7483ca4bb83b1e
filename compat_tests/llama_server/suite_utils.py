"""Bends the suite's `utils` module: local models, our server's extra arguments, any model's prose."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import json
import pathlib
import re
import subprocess
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.llama_server.bend import BUILTINS, fill
from compat_tests.llama_server.classification import classify
from compat_tests.llama_server.rules import B_RULES, PROSE
from compat_tests.llama_server.state import State, file_name, function_name
from compat_tests.llama_server.warm import WarmServer


def current_rule() -> dict[str, Any]:
    """Rule of the running test; empty unless it is class B."""
    if State.item is None:
        return {}
    name = function_name(State.item)
    return B_RULES.get(name, {}) if classify(file_name(State.item), name)[0] == "B" else {}


class SubprocessProxy(types.ModuleType):
    """`subprocess` as utils.py sees it: Popen gets extra arguments, without options that the test sets itself."""

    def __init__(self, extra: list[str], rule_arguments: Callable[[], list[str]], *, warm: bool):
        super().__init__("subprocess")
        self._rule_arguments = rule_arguments
        self._warm = warm
        self._groups: list[list[str]] = []  # [option, values...]
        for argument in extra:
            is_option = argument.startswith("-") and not re.match(r"-[\d.]", argument)
            if is_option or not self._groups:
                self._groups.append([argument])
            else:
                self._groups[-1].append(argument)

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def Popen(self, arguments: list[str], **kwargs: Any) -> Any:
        extra = [argument for group in self._groups if group[0] not in arguments for argument in group]
        arguments = [*arguments, *extra, *self._rule_arguments()]
        if self._warm:
            return WarmServer(arguments, kwargs["stdout"], kwargs["env"])
        return subprocess.Popen(arguments, **kwargs)


class PatientTime(types.ModuleType):
    """`time` as utils.py sees it: it looks whether a server is ready every 10 ms, which takes the time it starts in."""

    def __init__(self) -> None:
        super().__init__("time")

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        time.sleep(max(seconds, 0.1))


def stub_missing_modules() -> None:
    """The suite imports wget and filelock only for downloads, which never happen here."""

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no network in this run")

    for name, attributes in (("wget", {"download": refuse}), ("filelock", {"FileLock": contextlib.nullcontext})):
        try:
            importlib.import_module(name)
        except ImportError:
            module = types.ModuleType(name)
            vars(module).update(attributes)
            sys.modules[name] = module


def local_model(server: Any, cfg: dict[str, Any]) -> str | None:
    """The file that stands in for the hub repository or URL of a server preset; skips the test without one."""
    repo, file, url = server.model_hf_repo or "", server.model_hf_file or "", server.model_url or ""
    if not (repo or file or url):
        return server.model_file or (cfg["model"] if current_rule().get("router") else None)
    wanted = f"{repo} {file} {url}"
    if "infill" in wanted:
        return str(cfg["infill_model"] or cfg["model"])
    if "stories15M_MOE" in wanted:
        return str(cfg["moe_model"] or cfg["model"])
    if "stories260K" in wanted or "tinyllamas/" in wanted:
        return str(cfg["model"])
    pytest.skip(f"no local model for {wanted.strip()}")


def install(cfg: dict[str, Any]) -> None:
    """Import the suite's utils and replace what reaches for the network or for one model's words."""
    sys.path.insert(0, cfg["suite"])
    stub_missing_modules()
    utils = importlib.import_module("utils")
    if cfg.get("expect"):
        State.expected = json.loads(pathlib.Path(cfg["expect"]).read_text(encoding="utf-8"))
    vars(builtins).update(BUILTINS)
    utils.ServerPreset.load_all = staticmethod(lambda: None)  # it would start and download every preset
    utils.time = PatientTime()
    utils.download_file = lambda url, output_file_path=None: cfg["draft_model"] or cfg["model"]
    utils.subprocess = SubprocessProxy(
        cfg["server_args"], lambda: ["--ignore-eos"] if current_rule().get("eos") else [], warm=cfg["warm"]
    )
    _wrap_start(utils, cfg)
    _wrap_requests(utils)
    _wrap_match(utils)


def _wrap_start(utils: Any, cfg: dict[str, Any]) -> None:
    original = utils.ServerProcess.start

    def start(self: Any, timeout_seconds: int = utils.DEFAULT_HTTP_TIMEOUT) -> Any:
        path = local_model(self, cfg)
        self.model_hf_repo = self.model_hf_file = self.model_url = None
        self.model_file = path
        if cfg["threads"] and self.n_threads is None:
            self.n_threads = cfg["threads"]
        if self.spec_type == "draft-simple" and cfg["spec_type"] != "draft-simple":
            self.spec_type, self.model_draft = cfg["spec_type"], None
        return original(self, max(timeout_seconds, cfg["start_timeout"]))

    utils.ServerProcess.start = start


def _wrap_requests(utils: Any) -> None:
    """Give prompts the length and raise a small max_tokens where the rule says so."""
    original = utils.ServerProcess.make_request

    def make_request(self: Any, method: str, path: str, data: Any = None, *args: Any, **kwargs: Any) -> Any:
        least, n_prompt = current_rule().get("min_tokens"), current_rule().get("prompt_tokens")
        if least and isinstance(data, dict) and 0 < data.get("max_tokens", 0) < least:
            data = {**data, "max_tokens": least}
        if n_prompt and isinstance(data, dict) and "prompt" in data:
            data = {**data, "prompt": fill(data["prompt"], n_prompt)}
        return original(self, method, path, data, *args, **kwargs)

    utils.ServerProcess.make_request = make_request


def _wrap_match(utils: Any) -> None:
    """Patterns that describe one model's prose accept any text in class B tests."""
    original = utils.match_regex

    def match_regex(regex: str, text: str) -> bool:
        if State.item is not None and regex in PROSE:
            cls, _ = classify(file_name(State.item), function_name(State.item))
            if cls == "B":
                return isinstance(text, str) and len(text) > 0
        return bool(original(regex, text))

    utils.match_regex = match_regex
