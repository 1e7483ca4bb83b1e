"""The web page in a browser: settings, models, slots, and what keyboards and screen readers need."""

from __future__ import annotations

import pytest

from pyjet.server.profiles import Profile
from tests.server.page_visit import ANSWER, CALL, HELLO, TOOLS, Open
from tests.server.scripted import said


def test_settings_go_into_requests_and_stay(visit: Open) -> None:
    tab = visit()
    tab.page.click("#open-settings")
    assert tab.page.get_attribute("[name=temperature]", "placeholder") == "0.8"
    assert tab.page.get_attribute("[name=seed]", "placeholder") == "-1"
    tab.page.click("#cancel-settings")
    tab.set_fields(temperature="0.25", top_k="7", systemMessage="Be brief.", customJson='{"min_p": 0.5}')
    tab.reload()
    tab.answer()
    sampling = tab.engine.requests[-1].sampling
    assert (sampling.temperature, sampling.top_k, sampling.min_p) == (0.25, 7, 0.5)
    assert "Be brief." in tab.prompt()
    tab.set_fields(temperature="", systemMessage="")
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
    tab.set_fields(customJson=text)
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
