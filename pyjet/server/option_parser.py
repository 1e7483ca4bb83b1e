"""Command line, environment and config files to ServerOptions, by llama-server's rules.

Files come first, environment variables override them, command-line options override both from left to right; the last
one wins.
In names that start with ``--`` an underscore is read as a dash. ``--name=value`` is not supported, short
names are never bundled.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyjet.server import option_table_values as values
from pyjet.server.config_files import ConfigError, Entry, config_paths, read_config
from pyjet.server.help_text import option_entry
from pyjet.server.option_table import BY_SPELLING, OPTIONS
from pyjet.server.option_table_row import Option, Policy
from pyjet.server.options import ServerOptions
from pyjet.server.speculation import SpeculationError, check_speculation


class OptionError(Exception):
    """The command line or environment is wrong; the text goes to stderr and the exit code is 1."""


@dataclass
class CommandLine:
    """What the user asked for. ``action`` is empty to serve, else ``help``, ``version``, ``list-devices`` ...

    ``config_files``: paths of the files whose values count.
    """

    options: ServerOptions = field(default_factory=ServerOptions)
    action: str = ""
    warnings: list[str] = field(default_factory=list)
    config_files: list[str] = field(default_factory=list)


def parse(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> CommandLine:
    """Parse the arguments after the program's name. Raises OptionError."""
    line = CommandLine()
    environment = os.environ if environment is None else environment
    _read_config_files(line, environment)
    from_environment = _read_environment(line, environment)
    _read_arguments(line, arguments, from_environment)
    if not line.action:
        _finish(line, environment)
    return line


# config files


def _read_config_files(line: CommandLine, environment: Mapping[str, str]) -> None:
    try:
        for path in config_paths(environment):
            line.config_files.append(str(path))
            for entry in read_config(path):
                _apply_entry(line, entry)
    except ConfigError as error:
        raise OptionError(f"error: {error}\n\n") from None


def _apply_entry(line: CommandLine, entry: Entry) -> None:
    """One value of a file. What is unknown may belong to another program of llama.cpp."""
    spelling, option = _option_of_key(entry.key)
    if option is None or option.action:
        line.warnings.append(f"ignoring option '{entry.key}' of {entry.place}: not supported by this program")
        return
    try:
        if option.takes_value:
            _apply(line, option, entry.key, option.convert(entry.value))
        else:
            value = values.to_bool(entry.value) != (spelling in option.off_names)
            if value or option.off_names:
                _apply(line, option, entry.key, value)
    except ValueError as error:
        raise OptionError(f'error while handling "{entry.key}" in {entry.place}: {error}\n\n') from None


def _option_of_key(key: str) -> tuple[str, Option | None]:
    """(spelling, option) for an option's name without dashes, or one of its environment variables."""
    for spelling in (f"--{key}", f"-{key}"):
        if spelling in BY_SPELLING:
            return spelling, BY_SPELLING[spelling]
    return key, next((option for option in OPTIONS if key in option.env), None)


# environment


def _read_environment(line: CommandLine, environment: Mapping[str, str]) -> dict[Option, str]:
    """Apply all variables; returns which variable set which option."""
    used: dict[Option, str] = {}
    for option in OPTIONS:
        for name in option.env:
            text = environment.get(name)
            if text is None and option.off_names and _negated(name) in environment:
                name, text = _negated(name), "off"
            # the token of another program's downloads is not meant for this server
            if text is None or name == "HF_TOKEN":
                continue
            try:
                _apply_environment(line, option, name, text)
            except ValueError as error:
                raise OptionError(f'error while handling environment variable "{name}": {error}\n\n') from None
            used[option] = name
    return used


def _apply_environment(line: CommandLine, option: Option, name: str, text: str) -> None:
    if option.takes_value:
        _apply(line, option, name, option.convert(text))
        return
    value = values.to_bool(text)
    if value or option.off_names:
        _apply(line, option, name, value)


def _negated(name: str) -> str:
    return name.replace("LLAMA_ARG_", "LLAMA_ARG_NO_", 1)


# command line


def _read_arguments(line: CommandLine, arguments: Sequence[str], from_environment: dict[Option, str]) -> None:
    seen: set[Option] = set()
    position = 0
    while position < len(arguments):
        given = arguments[position]
        spelling = given.replace("_", "-") if given.startswith("--") else given
        option = BY_SPELLING.get(spelling)
        if option is None:
            raise OptionError(f"error: invalid argument: {given}\n")
        if option.action == "help":
            line.action = line.action or "help"
        elif option.action:
            line.action = option.action
            return
        words = arguments[position + 1 : position + 1 + option.n_values]
        position += 1 + option.n_values
        _warn_about_repeats(line, option, given, seen, from_environment)
        try:
            if len(words) < option.n_values:
                raise ValueError("expected value for argument")
            if not option.action:
                _apply(line, option, given, _value(option, spelling, words))
        except ValueError as error:
            raise OptionError(_argument_error(option, given, str(error))) from None


def _value(option: Option, spelling: str, words: Sequence[str]) -> Any:
    if not option.takes_value:
        return spelling in option.names
    return option.convert(" ".join(words))


def _warn_about_repeats(
    line: CommandLine, option: Option, given: str, seen: set[Option], from_environment: dict[Option, str]
) -> None:
    if option in from_environment and option not in seen:
        name = from_environment[option]
        line.warnings.append(
            f"warn: {name} environment variable is set, but will be overwritten by command line argument {given}"
        )
    if option in seen and not option.accumulates:
        line.warnings.append(f"{given} was given several times; the last value counts")
    seen.add(option)


def _argument_error(option: Option, given: str, reason: str) -> str:
    return (
        f'error while handling argument "{given}": {reason}\n\n'
        f"usage:\n{option_entry(option)}\nto show complete usage, run with -h\n"
    )


# effect of one option


def _apply(line: CommandLine, option: Option, given: str, value: Any) -> None:
    """Store a converted value. Raises ValueError when the option or the value is refused."""
    if option.policy is Policy.REMOVED:
        raise ValueError(option.reason)
    if option.policy is Policy.REFUSE:
        # switching off what does not exist is fine
        if option.off_names and value is False:
            return
        raise ValueError(option.reason)
    refusal = option.unavailable(value) if option.unavailable else None
    if refusal:
        raise ValueError(refusal)
    _warn_about_effect(line, option, given, value)
    if option.remark is not None and (remark := option.remark(value)):
        line.warnings.append(f"{given}: {remark}")
    if option.apply is not None:
        option.apply(line.options, value)
    elif option.field:
        setattr(line.options, option.field, value)
    if option.field:
        line.options.user_set.add(option.field)


def _warn_about_effect(line: CommandLine, option: Option, given: str, value: Any) -> None:
    reason = option.reason if option.policy is Policy.ACCEPT else ""
    if option.ineffective is not None:
        reason = option.ineffective(value) or ""
    if not reason:
        return
    text = f"{given} has no effect: {reason}"
    if text not in line.warnings:
        line.warnings.append(text)


# what depends on several options


def _finish(line: CommandLine, environment: Mapping[str, str]) -> None:
    options = line.options
    if options.escape:
        options.reverse_prompt = [values.unescape(text) for text in options.reverse_prompt]
        options.dry_sequence_breakers = [values.unescape(text) for text in options.dry_sequence_breakers]
        options.reasoning_budget_message = values.unescape(options.reasoning_budget_message)
    if "enable_thinking" in options.chat_template_kwargs:
        line.warnings.append("enable_thinking in --chat-template-kwargs works, but --reasoning on|off is the way to go")
    if options.threads_batch > 0 and options.threads_batch != options.threads:
        line.warnings.append("--threads-batch is not used: prompts and generation share their steps, see --threads")
    try:
        line.warnings += check_speculation(options)
    except SpeculationError as error:
        raise OptionError(f'error while handling argument "{error.option}": {error}\n\n') from None
    if environment.get("AIP_MODE") == "PREDICTION":
        _apply_prediction_mode(options, environment)
    if options.port == 0 and sum(not host.endswith(".sock") for host in options.host) > 1:
        raise OptionError('error while handling argument "--port": port 0 works with one TCP address only\n\n')
    _check_tls(options)
    options.cache_reuse = 0
    options.slots_debug = environment.get("LLAMA_SERVER_SLOTS_DEBUG", "") not in ("", "0")
    options.media_marker = environment.get("LLAMA_MEDIA_MARKER")


def _check_tls(options: ServerOptions) -> None:
    """One of the two files would leave the server without TLS, which nobody who gave it wants."""
    given, missing = "--ssl-key-file", "--ssl-cert-file"
    if options.ssl_cert_file is not None:
        given, missing = missing, given
    if (options.ssl_key_file is None) != (options.ssl_cert_file is None):
        raise OptionError(f'error while handling argument "{given}": TLS needs {missing}, too; use both or neither\n\n')


def _apply_prediction_mode(options: ServerOptions, environment: Mapping[str, str]) -> None:
    """Platforms that host prediction containers say port and routes in variables of their own."""
    try:
        options.port = values.int_in(0, 65535)(environment.get("AIP_HTTP_PORT", "8080"))
    except ValueError as error:
        raise OptionError(f'error while handling environment variable "AIP_HTTP_PORT": {error}\n\n') from None
    options.predict_route = environment.get("AIP_PREDICT_ROUTE", "/predict")
    options.health_route = environment.get("AIP_HEALTH_ROUTE")
    for name, route in (("AIP_PREDICT_ROUTE", options.predict_route), ("AIP_HEALTH_ROUTE", options.health_route)):
        if route is not None and not route.startswith("/"):
            raise OptionError(f'error while handling environment variable "{name}": a route starts with "/"\n\n')
