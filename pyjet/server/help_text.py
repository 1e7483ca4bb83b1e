"""The help page, the version lines and the completion script."""

from __future__ import annotations

import platform
import textwrap
from typing import Any

import pyjet
from pyjet.server.option_table import OPTIONS
from pyjet.server.option_table_row import Option, Policy, Section
from pyjet.server.options import ServerOptions

LLAMA_CPP_BUILD = 11434
"""Number of the llama.cpp build whose interface this server offers."""

_NAMES_WIDTH = 40
_TEXT_WIDTH = 78


def version_text() -> str:
    """Two lines: version and build, then interpreter and platform."""
    return (
        f"version: {pyjet.__version__} (build {LLAMA_CPP_BUILD}, commit pyjet{pyjet.__version__})\n"
        f"built with {platform.python_implementation()} {platform.python_version()} "
        f"for {platform.machine()}-{platform.system().lower()}\n"
    )


def help_text() -> str:
    """All options by section, two columns."""
    defaults = ServerOptions()
    parts = []
    for section in Section:
        entries = [option_entry(option, defaults) for option in OPTIONS if option.section is section]
        parts.append(f"----- {section.value} -----\n\n" + "".join(entries))
    return "\n\n".join(parts)


def option_entry(option: Option, defaults: ServerOptions | None = None) -> str:
    """One option's lines in the help page."""
    names = ", ".join(option.spellings) + (f" {option.value_name}" if option.value_name else "")
    text = option.help + _default_text(option, defaults or ServerOptions())
    lines = textwrap.wrap(text, _TEXT_WIDTH, break_on_hyphens=False)
    lines += [f"(env: {name})" for name in option.env[:1]]
    indent = " " * _NAMES_WIDTH
    if len(names) >= _NAMES_WIDTH:
        return names + "\n" + "".join(f"{indent}{line}\n" for line in lines)
    return names.ljust(_NAMES_WIDTH) + lines[0] + "\n" + "".join(f"{indent}{line}\n" for line in lines[1:])


def completion_script() -> str:
    """Completion of option names for bash."""
    words = " ".join(sorted(name for option in OPTIONS for name in option.spellings))
    return (
        "_pyjet_server_completions() {\n"
        f'    COMPREPLY=($(compgen -W "{words}" -- "${{COMP_WORDS[COMP_CWORD]}}"))\n'
        "}\n"
        "complete -o default -F _pyjet_server_completions pyjet-server llama-server\n"
    )


def _default_text(option: Option, defaults: ServerOptions) -> str:
    if option.default is not None:
        return f" (default: {option.default})"
    if not option.field or option.policy is not Policy.MUST or option.action:
        return ""
    return f" (default: {_value_text(getattr(defaults, option.field))})"


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "enabled" if value else "disabled"
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value)
