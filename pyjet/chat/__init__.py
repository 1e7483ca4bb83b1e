"""Text to messages and back: chat templates, request validation, and incremental parsing of answers.

    template = ChatTemplate(source, bos_token="", eos_token="<|im_end|>")
    prepared = prepare_chat(body, template, ChatOptions())      # prepared.prompt goes to the tokenizer
    parser = ChatStreamParser(prepared)
    for text in pieces:
        deltas = parser.push(text)                              # [Delta(kind="content", text="Hel"), ...]
    deltas = parser.finish(truncated=False)
    parser.message().to_openai()
"""

from pyjet.chat.messages import prepare_chat
from pyjet.chat.stream_parser import ChatStreamParser
from pyjet.chat.template import ChatTemplate, TemplateError
from pyjet.chat.types import ChatError, ChatMessage, ChatOptions, Delta, PreparedChat, ToolCall

__all__ = [
    "ChatError",
    "ChatMessage",
    "ChatOptions",
    "ChatStreamParser",
    "ChatTemplate",
    "Delta",
    "PreparedChat",
    "TemplateError",
    "ToolCall",
    "prepare_chat",
]
