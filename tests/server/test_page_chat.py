"""The web page in a browser: chats with a scripted engine behind the real server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyjet.server.app import create_app
from pyjet.server.options import ServerOptions
from pyjet.server.profiles import Profile
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.browser import chromium, tab
from tests.server.live import running, serving
from tests.server.scripted import eos, ids, make_service, said, tiny_tokenizer

HELLO = "I greet back.</think>\n\nHello **you**"
CALL = (
    "I look.</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
    "</function>\n</tool_call>"
)
TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Weather of a city",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            },
        }
    ]
)
ANSWER = ".message.assistant"
DONE = f"{ANSWER}[aria-busy=false]"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


class Visit:
    """A browser tab with the page, and the engine that answers it."""

    def __init__(self, page: Any, engine: ScriptedEngine) -> None:
        self.page = page
        self.engine = engine

    def ready(self) -> None:
        self.page.wait_for_selector("#send:enabled")

    def send(self, text: str) -> None:
        self.page.fill("#text", text)
        self.page.press("#text", "Enter")

    def answer(self, text: str = "Hi") -> None:
        """Send a message and wait for the end of its answer."""
        before = self.page.locator(DONE).count()
        self.send(text)
        self.page.locator(DONE).nth(before).wait_for()

    def prompt(self) -> str:
        """What the engine was asked last."""
        return tiny_tokenizer().decode(self.engine.requests[-1].prompt)

    def texts(self, selector: str) -> list[str]:
        return [str(text) for text in self.page.locator(selector).all_inner_texts()]

    def reload(self) -> None:
        self.page.reload()
        self.ready()


Open = Callable[..., Visit]


@pytest.fixture
def visit(browser: Any) -> Iterator[Open]:
    """A function that serves the scripts and opens the page. No script of it may fail or break the policy."""
    problems: list[str] = []
    with tab(browser, problems) as page:
        stack = []

        def start(*scripts: Script, n_ctx_slot: int = 4096, **options: Any) -> Visit:
            engine = ScriptedEngine(*(scripts or (said(HELLO),)), n_ctx_slot=n_ctx_slot)
            server = serving(make_service(engine, **options))
            stack.append(server)
            page.goto(f"http://127.0.0.1:{server.__enter__()}{options.get('api_prefix', '')}/")
            visit = Visit(page, engine)
            if not options.get("api_keys"):
                visit.ready()
            return visit

        try:
            yield start
        finally:
            for server in stack:
                server.__exit__(None, None, None)
    assert problems == []


@pytest.mark.parametrize("prefix", ["", "/p/x"])
def test_an_answer_is_streamed(visit: Open, prefix: str) -> None:
    n_first = len(ids("I greet back.</think>\n\nHello"))
    tab = visit(said(HELLO, pause_after=n_first, cached=3), api_prefix=prefix)
    tab.send("Hi <b>there</b>")
    tab.page.wait_for_selector(f"{ANSWER}[aria-busy=true] >> text=Hello")
    assert tab.texts("#state") == ["Answering…"]
    assert tab.page.is_visible("#stop") and not tab.page.is_visible("#send")
    assert tab.texts(".message.user .text") == ["Hi <b>there</b>"]
    tab.engine.resume.set()
    tab.page.wait_for_selector(DONE)
    assert tab.texts(f"{ANSWER} .markdown") == ["Hello you"] and tab.texts(f"{ANSWER} strong") == ["you"]
    (stats,) = tab.texts(".stats")
    assert "100 tokens/s" in stats and "of these 3 cached" in stats
    assert "of 4,096 tokens" in tab.texts("#state")[0]
    assert tab.page.is_visible("#send") and not tab.page.is_visible("#stop")
    assert tab.page.title() == "Hi <b>there</b> · pyjet"


def test_thoughts_are_apart(visit: Open) -> None:
    tab = visit(said(HELLO, pause_after=2))
    tab.send("Hi")
    tab.page.wait_for_selector("text=Thinking… >> visible=true")
    assert not tab.page.is_visible(".reasoning > div")
    tab.page.click(".reasoning summary")
    assert "I greet back.".startswith(tab.texts(".reasoning > div")[0].strip())
    tab.page.click("text=Answer now")
    tab.engine.say(said("</think>\n\nHello"))
    tab.engine.resume.set()
    tab.page.wait_for_selector(DONE)
    assert tab.texts(".reasoning summary") == ["Thoughts"]
    assert not tab.page.is_visible("text=Answer now")


def test_a_tool_call_and_its_result(visit: Open) -> None:
    tab = visit(said(CALL), said("</think>\n\nIt is sunny."), ui_config={"tools": TOOLS})
    tab.answer("Weather?")
    assert "get_weather" in tab.prompt()
    assert tab.texts(".call summary") == ["Calls get_weather"]
    assert json.loads(tab.texts(".call pre")[0]) == {"city": "Paris"}
    tab.reload()
    tab.page.fill(".answers textarea", "25 °C, <sun>")
    tab.page.click("text=Send results")
    tab.page.wait_for_selector("text=It is sunny.")
    prompt = tab.prompt()
    assert "<tool_response>\n25 °C, <sun>\n</tool_response>" in prompt and "<parameter=city>\nParis\n" in prompt
    assert not tab.page.is_visible(".answers")
    tab.page.click(".result summary")
    assert tab.texts(".result pre") == ["25 °C, <sun>"]


@pytest.mark.parametrize("how", ["button", "key"])
def test_stop(visit: Open, how: str) -> None:
    tab = visit(said(HELLO, pause_after=8), said("</think>\n\nSecond"))
    tab.send("Hi")
    tab.page.wait_for_selector(f"{ANSWER}[aria-busy=true] .reasoning")
    tab.page.click("#stop") if how == "button" else tab.page.keyboard.press("Escape")
    tab.page.wait_for_selector("text=You stopped this answer.")
    assert tab.engine.wait_idle() and len(tab.engine.cancels) == 1
    assert tab.page.evaluate("document.activeElement.id") == "text"
    tab.answer("More")
    assert tab.texts(f"{ANSWER} .markdown")[-1] == "Second"


def test_stop_before_the_server_begins(visit: Open) -> None:
    tab = visit(said(HELLO, prefill_delay=60))
    tab.page.fill("#text", "Hi")
    tab.page.evaluate("document.getElementById('send').click(); document.getElementById('stop').click()")
    tab.page.wait_for_selector("text=You stopped this answer.")
    tab.page.wait_for_timeout(1000)  # the request is on its way
    assert tab.engine.wait_idle() and len(tab.engine.requests) == len(tab.engine.cancels) == 1


def test_reload_keeps_conversations(visit: Open) -> None:
    tab = visit(said(HELLO), said("</think>\n\nSecond"))
    tab.answer("First question")
    tab.reload()
    assert tab.texts(f"{ANSWER} .markdown") == ["Hello you"] and tab.texts(".reasoning summary") == ["Thoughts"]
    tab.page.click("#new-chat")
    assert tab.texts("#log") == ["Write a message to begin. Conversations stay in this browser."]
    tab.answer("Second question")
    assert "First question" not in tab.prompt()
    assert tab.texts("#chats .open") == ["Second question", "First question"]
    tab.page.click("#chats >> text=First question")
    tab.answer("And then?")
    assert "First question" in tab.prompt() and "Hello **you**" in tab.prompt()
    tab.page.once("dialog", lambda dialog: dialog.accept())
    tab.page.click("#chats li:has-text('Second question') >> text=Delete")
    tab.reload()
    assert tab.texts("#chats .open") == ["First question"]


def test_an_answer_goes_on_after_a_reload(visit: Open) -> None:
    tab = visit(said(HELLO, pause_after=len(ids("I greet back.</think>\n\nHello"))))
    tab.send("Hi")
    tab.page.wait_for_selector(f"{ANSWER} >> text=Hello")
    tab.page.reload()
    tab.page.wait_for_selector(f"{ANSWER}[aria-busy=true] >> text=Hello")
    tab.engine.resume.set()
    tab.page.wait_for_selector(DONE)
    assert tab.texts(f"{ANSWER} .markdown") == ["Hello you"]
    assert len(tab.engine.requests) == 1 and tab.engine.cancels == []


def test_two_conversations_at_once(visit: Open) -> None:
    tab = visit(said(HELLO, pause_after=8), said("</think>\n\nSecond"))
    tab.send("First question")
    tab.page.wait_for_selector(f"{ANSWER}[aria-busy=true] .reasoning")
    tab.page.click("#new-chat")
    tab.answer("Second question")
    assert tab.page.locator("#chats .busy").count() == 1
    tab.engine.resume.set()
    tab.page.wait_for_selector("#chats:not(:has(.busy))")
    tab.page.click("#chats >> text=First question")
    assert tab.texts(f"{ANSWER} .markdown") == ["Hello you"]


def test_edit_and_try_again(visit: Open) -> None:
    tab = visit(said(HELLO), said("</think>\n\nAnother"), said("</think>\n\nEdited"))
    tab.answer("First question")
    tab.page.click("text=Try again")
    tab.page.wait_for_selector(f"{DONE} >> text=Another")
    assert tab.page.locator(ANSWER).count() == 1 and "Hello" not in tab.prompt()
    tab.page.click("text=Edit")
    assert tab.page.input_value("#text") == "First question" and tab.page.is_visible("#editing")
    tab.page.press("#text", "Escape")
    assert tab.page.input_value("#text") == "" and not tab.page.is_visible("#editing")
    tab.page.click("text=Edit")
    tab.send("Better question")
    tab.page.wait_for_selector(f"{DONE} >> text=Edited")
    assert tab.texts(".message.user .text") == ["Better question"]
    assert "First question" not in tab.prompt()


def test_keys_of_the_message_box(visit: Open) -> None:
    tab = visit()
    tab.page.fill("#text", "one")
    tab.page.press("#text", "Shift+Enter")
    tab.page.keyboard.type("two")
    tab.page.press("#text", "Escape")
    assert tab.page.input_value("#text") == "one\ntwo"
    tab.page.press("#text", "Enter")
    tab.page.wait_for_selector(DONE)
    assert tab.texts(".message.user .text") == ["one\ntwo"]


# errors


def test_a_prompt_that_is_too_long(visit: Open) -> None:
    tab = visit(n_ctx_slot=300)
    tab.answer("word " * 400)
    (text,) = tab.texts(".failure")
    assert "too long" in text and "room for 300" in text and "--ctx-size" in text
    tab.page.click("text=Edit")
    tab.send("short")
    tab.page.wait_for_selector(f"{DONE} >> text=Hello you")
    assert tab.page.locator(".failure").count() == 0


@pytest.mark.parametrize("fail_after", [0, 8])
def test_an_engine_that_fails(visit: Open, fail_after: int) -> None:
    tab = visit(said(HELLO, fail_after=fail_after, fail_message="out of <memory>"), said(HELLO))
    tab.answer()
    assert "out of <memory>" in tab.texts(".failure")[0]
    tab.page.click("text=Try again")
    tab.page.wait_for_selector(f"{ANSWER} >> text=Hello")
    assert tab.page.locator(".failure").count() == 0


def test_a_text_that_ends_at_the_limit(visit: Open) -> None:
    tab = visit(ui_config={"max_tokens": 4})
    tab.answer()
    assert "longest allowed length" in tab.texts(".note")[0]


def test_while_the_model_loads(browser: Any) -> None:
    service = make_service(ScriptedEngine(said(HELLO)))
    with tab(browser) as page, running(service.options) as server:
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.wait_for_selector("text=The model is loading…")
        assert page.is_disabled("#send")
        server.app = create_app(service, service.options)
        page.wait_for_selector("#send:enabled")


def test_a_server_that_goes_away(browser: Any) -> None:
    service = make_service(ScriptedEngine(said(HELLO)))
    with tab(browser) as page:
        with serving(service) as port:
            page.goto(f"http://127.0.0.1:{port}/")
            page.wait_for_selector("#send:enabled")
        page.fill("#text", "Hi")
        page.press("#text", "Enter")
        page.wait_for_selector(".failure >> text=does not answer")
        page.wait_for_selector("#state >> text=Trying again…")


def test_an_answer_that_loses_its_server(browser: Any) -> None:
    engine = ScriptedEngine(Script([*ids(HELLO), eos()], pause_after=8))
    with tab(browser) as page:
        with serving(make_service(engine)) as port:
            page.goto(f"http://127.0.0.1:{port}/")
            page.wait_for_selector("#send:enabled")
            page.fill("#text", "Hi")
            page.press("#text", "Enter")
            page.wait_for_selector(f"{ANSWER}[aria-busy=true] .reasoning")
        page.wait_for_selector("text=the rest of this answer is missing")


def test_the_key_is_asked_for_and_kept(visit: Open) -> None:
    tab = visit(api_keys=["sk-one"])
    for key, hint in (("wrong", "--api-key"), ("sk-one", "does not know that key")):
        tab.page.wait_for_selector(f"#key[open] >> text={hint}")
        tab.page.fill("#key-text", key)
        tab.page.press("#key-text", "Enter")
    tab.ready()
    tab.answer()
    tab.reload()
    tab.answer()
    assert tab.texts(f"{ANSWER} .markdown") == ["Hello you"] * 2


# settings, models, slots


def set_field(tab: Visit, **values: str) -> None:
    tab.page.click("#open-settings")
    for name, value in values.items():
        tab.page.fill(f"#settings [name={name}]", value)
    tab.page.click("#settings >> text=Save")


def test_settings_go_into_requests_and_stay(visit: Open) -> None:
    tab = visit()
    tab.page.click("#open-settings")
    assert tab.page.get_attribute("[name=temperature]", "placeholder") == "0.8"
    assert tab.page.get_attribute("[name=seed]", "placeholder") == "-1"
    tab.page.click("#cancel-settings")
    set_field(tab, temperature="0.25", top_k="7", systemMessage="Be brief.", customJson='{"min_p": 0.5}')
    tab.reload()
    tab.answer()
    sampling = tab.engine.requests[-1].sampling
    assert (sampling.temperature, sampling.top_k, sampling.min_p) == (0.25, 7, 0.5)
    assert "Be brief." in tab.prompt()
    set_field(tab, temperature="", systemMessage="")
    tab.answer()
    assert tab.engine.requests[-1].sampling.temperature == pytest.approx(0.8)
    assert tab.engine.requests[-1].sampling.top_k == 7 and "Be brief." not in tab.prompt()
    tab.page.click("#open-settings")
    tab.page.click("text=Reset all")
    tab.answer()
    assert tab.engine.requests[-1].sampling.top_k == 40


@pytest.mark.parametrize("text", ["{bad", "[1]", "5"])
def test_settings_that_are_wrong_are_not_saved(visit: Open, text: str) -> None:
    tab = visit()
    set_field(tab, customJson=text)
    assert tab.page.is_visible("#settings") and tab.page.is_visible("#settings .wrong")
    tab.page.fill("[name=customJson]", "{}")
    tab.page.click("#settings >> text=Save")
    assert not tab.page.is_visible("#settings")


def test_settings_of_the_server_apply_where_the_user_set_nothing(visit: Open) -> None:
    tab = visit(ui_config={"temperature": 0.5, "top_k": "wrong", "theme": "dark", "other": [1]})
    assert tab.page.get_attribute("html", "data-theme") == "dark"
    tab.answer()
    assert tab.engine.requests[-1].sampling.temperature == 0.5 and tab.engine.requests[-1].sampling.top_k == 40
    tab.page.click("#open-settings")
    tab.page.select_option("[name=theme]", "light")
    tab.page.fill("[name=temperature]", "0.75")
    tab.page.click("#settings >> text=Save")
    tab.reload()
    tab.answer()
    assert tab.page.get_attribute("html", "data-theme") == "light"
    assert tab.engine.requests[-1].sampling.temperature == 0.75


def test_thinking_can_be_switched_off(visit: Open) -> None:
    tab = visit(said("Hello"))
    tab.page.click("#open-settings")
    tab.page.select_option("[name=thinking]", "off")
    tab.page.click("#settings >> text=Save")
    tab.answer()
    assert tab.prompt().endswith("<think>\n\n</think>\n\n")
    assert tab.texts(f"{ANSWER} .markdown") == ["Hello"]


def test_the_chosen_profile_is_asked(visit: Open) -> None:
    tab = visit(profiles=[Profile("short", n_ctx=2000, max_tokens=5, priority=3)])
    assert tab.texts("#model option") == ["tiny", "short"]
    tab.page.select_option("#model", "short")
    assert "context 2,000" in tab.texts("#model-facts")[0] and "priority 3" in tab.texts("#model-facts")[0]
    tab.reload()
    tab.answer()
    assert (tab.engine.requests[-1].max_tokens, tab.engine.requests[-1].priority) == (5, 3)


def test_slots_are_shown_while_they_work(visit: Open) -> None:
    tab = visit(said(HELLO, pause_after=4))
    tab.page.click("#slots summary")
    tab.page.wait_for_selector("#slots li:nth-child(4) >> text=free")
    tab.send("Hi")
    tab.page.wait_for_selector("#slots li >> text=writes, 4 tokens so far")
    tab.engine.resume.set()
    tab.page.wait_for_selector("#slots:not(:has-text('writes'))")


def test_slots_that_are_not_offered(visit: Open) -> None:
    assert not visit(slots=False).page.is_visible("#slots")


# what the page is to those who cannot see it or use no mouse


def test_controls_have_names(visit: Open) -> None:
    tab = visit(said(CALL), ui_config={"tools": TOOLS})
    tab.answer()
    tab.page.click("#open-settings")
    nameless = tab.page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, textarea")]
            .filter((node) => !(node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.length))
            .map((node) => node.outerHTML)"""
    )
    assert nameless == []


def test_the_page_can_be_used_with_the_keyboard(visit: Open) -> None:
    tab = visit()
    tab.answer("First question")
    tab.page.focus("#new-chat")
    tab.page.keyboard.press("Enter")
    assert tab.page.evaluate("document.activeElement.id") == "text"
    tab.page.focus("#new-chat")
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Enter")
    assert tab.texts(".message.user .text") == ["First question"]
