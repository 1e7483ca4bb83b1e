"""LangChain's model for llama.cpp's server (`/completion`): it completes a function in a file."""

from __future__ import annotations

from pathlib import Path

import task
from langchain_community.llms import Llamafile


def complete(url: str, streamed: bool) -> str:
    llm = Llamafile(base_url=url, temperature=0, n_predict=40, streaming=streamed)
    file = Path("add.py")
    prompt = file.read_text()
    stop = ["\n\n"]
    text = "".join(llm.stream(prompt, stop=stop)) if streamed else llm.invoke(prompt, stop=stop)
    file.write_text(f"{prompt}{text.rstrip()}\n")
    return text


task.run(complete)
