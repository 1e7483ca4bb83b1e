"""Options for chat templates, reasoning and the text of prompts and answers."""

from __future__ import annotations

from pyjet.server import option_table_values as values
from pyjet.server.option_table_row import Option, Section, row
from pyjet.server.options import ServerOptions


def _append_stop(options: ServerOptions, value: str) -> None:
    options.reverse_prompt.append(value)


CHAT_OPTIONS: list[Option] = [
    row("-r --reverse-prompt", "text that ends an answer when a request names none; may be given several times",
        field="reverse_prompt", value="PROMPT", apply=_append_stop, accumulates=True, default="none"),
    row("-sp --special", "show special tokens in answers", field="special"),
    row("--spm-infill", "suffix before prefix in /infill", field="spm_infill"),
    row("--jinja", "Jinja chat templates; without, only built-in ones and no tools", off="--no-jinja",
        field="jinja", env="JINJA"),
    row("--chat-template", "name of a built-in chat template, or Jinja source", field="chat_template",
        value="JINJA_TEMPLATE", env="CHAT_TEMPLATE", default="the model's own"),
    row("--chat-template-file", "file with the Jinja source of a chat template", field="chat_template",
        value="JINJA_TEMPLATE_FILE", env="CHAT_TEMPLATE_FILE", convert=values.file_text, default="none"),
    row("--chat-template-kwargs", "JSON object with variables for the chat template", field="chat_template_kwargs",
        value="STRING", env="CHAT_TEMPLATE_KWARGS", convert=values.json_object, default="{}"),
    row("--reasoning-format", "where thoughts go: none (they stay in the content), deepseek "
        "(reasoning_content); deepseek-legacy and auto do the same as deepseek",
        field="reasoning_format", value="FORMAT", env="THINK",
        convert=values.one_of("none", "deepseek", "deepseek-legacy", "auto")),
    row("-rea --reasoning", "let the model think: on, off or auto (if its template can)", field="reasoning",
        value="[on|off|auto]", env="REASONING", convert=values.on_off_auto),
    row("--reasoning-effort", "effort for the chat template; default: leave it to the template",
        field="reasoning_effort", value="LEVEL", env="REASONING_EFFORT"),
    row("--reasoning-budget", "tokens for thoughts; -1: no limit", field="reasoning_budget", value="N",
        env="THINK_BUDGET", convert=values.int_in(-1)),
    row("--reasoning-budget-message", "text put in front of the end of thoughts that ran out of budget",
        field="reasoning_budget_message", value="MESSAGE", env="THINK_BUDGET_MESSAGE", default="none"),
    row("--reasoning-preserve", "keep thoughts of all turns, for templates that can",
        off="--no-reasoning-preserve", field="reasoning_preserve", env="REASONING_PRESERVE"),
    row("--skip-chat-parsing", "leave thoughts and tool calls in the content", off="--no-skip-chat-parsing",
        field="skip_chat_parsing", env="SKIP_CHAT_PARSING"),
    row("--prefill-assistant", "continue the last message if it is the assistant's", off="--no-prefill-assistant",
        field="prefill_assistant", env="PREFILL_ASSISTANT"),
]  # fmt: skip

GRAMMAR_OPTIONS: list[Option] = [
    row("--grammar", "grammar that answers must follow, in GBNF", field="grammar", value="GRAMMAR", default="none",
        convert=values.grammar, section=Section.SAMPLING),
    row("--grammar-file", "file with a grammar", field="grammar", value="FNAME", convert=values.grammar_file,
        default="none", section=Section.SAMPLING),
    row("-j --json-schema", "JSON schema that answers must follow", field="json_schema", value="SCHEMA",
        convert=values.json_schema, default="none", section=Section.SAMPLING),
    row("-jf --json-schema-file", "file with a JSON schema", field="json_schema", value="FILE",
        convert=values.json_schema_file, default="none", section=Section.SAMPLING),
]  # fmt: skip
