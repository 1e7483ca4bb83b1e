"""The web page in a browser: chats with a scripted engine behind the real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pyjet.server.app import create_app
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.browser import open_tab
from tests.server.live import running, serving
from tests.server.page_visit import ANSWER, CALL, DONE, HELLO, TOOLS, Open
from tests.server.scripted import eos, ids, make_service, said


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
    assert "I look." in prompt  # templates keep the thoughts before a call while its results come in
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


def test_another_tab_sees_what_happens(visit: Open) -> None:
    tab = visit()
    other = tab.page.context.new_page()
    other.goto(tab.page.url)
    other.wait_for_selector("#send:enabled")
    tab.answer("First question")
    other.click("#chats >> text=First question")
    other.fill("#text", "being written")
    tab.answer("And then?")
    other.wait_for_selector(f"{DONE} >> nth=1")
    assert other.input_value("#text") == "being written"
    tab.page.once("dialog", lambda dialog: dialog.accept())
    tab.page.click("#chats >> text=Delete")
    other.wait_for_selector(".welcome")
    assert other.input_value("#text") == "being written"


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
    with open_tab(browser) as page, running(service.options) as server:
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.wait_for_selector("text=The model is loading…")
        assert page.is_disabled("#send")
        server.app = create_app(service, service.options)
        page.wait_for_selector("#send:enabled")


OLD_PAGE = b"<!doctype html><p>old</p><script src=old.js></script>"
OLD_FILES = {
    "/": ("text/html", OLD_PAGE),
    "/old.js": ("text/javascript", b"navigator.serviceWorker.register('sw.js')"),
    "/sw.js": (
        "text/javascript",
        b"addEventListener('install', (e) => e.waitUntil(caches.open('c').then((c) => c.addAll(['./', 'old.js']))));"
        b"addEventListener('activate', (e) => e.waitUntil(clients.claim()));"
        b"addEventListener('fetch', (e) => e.respondWith(caches.match(e.request).then((r) => r || fetch(e.request))));",
    ),
}


def old_page(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """Another server's page, which a service worker keeps in the browser."""
    kind, body = OLD_FILES.get(environ["PATH_INFO"], ("text/plain", b""))
    start_response("200 OK", [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body]


def test_a_page_that_another_server_left_in_the_browser(browser: Any) -> None:
    service = make_service(ScriptedEngine(said(HELLO)))
    with open_tab(browser) as page, running(service.options) as server:
        server.app = old_page
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.wait_for_function("navigator.serviceWorker.controller !== null")
        server.app = create_app(service, service.options)
        page.reload()  # shows the old page once more, and looks for a new worker
        page.wait_for_selector("#send:enabled")
        page.wait_for_function("navigator.serviceWorker.getRegistrations().then((all) => all.length === 0)")
        assert page.evaluate("caches.keys()") == []


def test_a_server_that_goes_away(browser: Any) -> None:
    service = make_service(ScriptedEngine(said(HELLO)))
    with open_tab(browser) as page:
        with serving(service) as port:
            page.goto(f"http://127.0.0.1:{port}/")
            page.wait_for_selector("#send:enabled")
        page.fill("#text", "Hi")
        page.press("#text", "Enter")
        page.wait_for_selector(".failure >> text=does not answer")
        page.wait_for_selector("#state >> text=Trying again…")


def test_an_answer_that_loses_its_server(browser: Any) -> None:
    engine = ScriptedEngine(Script([*ids(HELLO), eos()], pause_after=8))
    with open_tab(browser) as page:
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
