"""LangChain's agent around a chat model, which the third argument names: openai or anthropic."""

from __future__ import annotations

import sys
from typing import Any

import task
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessageChunk
from langchain_openai import ChatOpenAI


def chat_model(url: str) -> Any:
    if sys.argv[3] == "anthropic":
        return ChatAnthropic(model="pyjet-tiny", base_url=url, api_key="none", temperature=0, max_retries=0)
    use_responses = sys.argv[3] == "responses"
    return ChatOpenAI(
        model="pyjet-tiny", base_url=f"{url}/v1", api_key="none", temperature=0, max_retries=0,
        use_responses_api=use_responses,
    )  # fmt: skip


def change(url: str, streamed: bool) -> str:
    agent = create_agent(chat_model(url), tools=[task.edit_file], system_prompt=task.SYSTEM)
    question: Any = {"messages": [{"role": "user", "content": task.QUESTION}]}
    if not streamed:
        return str(agent.invoke(question)["messages"][-1].text)
    text = ""
    for message, _ in agent.stream(question, stream_mode="messages"):
        if isinstance(message, AIMessageChunk):
            text += message.text
    return text


task.run(change)
