"""The page's Markdown in a browser: what becomes what, and that nothing a model writes is more than text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyjet.server.app import create_app
from pyjet.server.options import ServerOptions
from pyjet.server.static_page import static_files
from tests.server.browser import chromium, open_tab
from tests.server.live import running

MODULES = next(path for path in static_files() if path.endswith("/js/main.js")).rpartition("/")[0]
SHOW = """async ([folder, texts]) => {
  const { MarkdownView } = await import(`${folder}/markdown_view.js`);
  const view = new MarkdownView();
  for (const text of texts) view.update(text);
  for (const node of view.node.querySelectorAll("figcaption")) node.remove();
  for (const node of view.node.querySelectorAll("[tabindex]")) node.removeAttribute("tabindex");
  for (const node of view.node.querySelectorAll("pre")) node.removeAttribute("aria-label");
  return view.node.innerHTML;
}"""
LINK = 'target="_blank" rel="noopener noreferrer"'


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    options = ServerOptions()
    with chromium() as browser, running(options) as server, open_tab(browser) as page:
        server.app = create_app(None, options)
        page.goto(f"http://127.0.0.1:{server.port}/")
        yield page


def show(page: Any, *texts: str) -> str:
    """HTML of the last text, shown after the ones before it."""
    return str(page.evaluate(SHOW, [MODULES, list(texts)]))


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a\nb\n\nc", "<p>a\nb</p><p>c</p>"),
        ("# A #\n### B#\n#C", "<h1>A</h1><h3>B#</h3><p>#C</p>"),
        ("a\n***\n- - -", "<p>a</p><hr><hr>"),
        ("**b** *i* ***bi*** ~~d~~", "<p><strong>b</strong> <em>i</em> <strong><em>bi</em></strong> <del>d</del></p>"),
        ("**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"),
        ("snake_case_name _i_ __b__", "<p>snake_case_name <em>i</em> <strong>b</strong></p>"),
        ("2 * 3 * 4 ** 5, a* b*", "<p>2 * 3 * 4 ** 5, a* b*</p>"),
        ("`a*b*` ``x`y`` ` `", "<p><code>a*b*</code> <code>x`y</code> <code> </code></p>"),
        ("**Use `**kw` here**", "<p><strong>Use <code>**kw</code> here</strong></p>"),
        (r"\*no\* \q 1\. C:\\", r"<p>*no* \q 1. C:\</p>"),
        ("**open `open", "<p>**open `open</p>"),
        ("```py\n# x\n  **y**\n```\nz", "<pre><code># x\n  **y**</code></pre><p>z</p>"),
        ("~~~\n```\n~~~~", "<pre><code>```</code></pre>"),
        ("```\nnot closed\n\nyet", "<pre><code>not closed\n\nyet</code></pre>"),
        ("```make\nall:\n\tcc x\n```", "<pre><code>all:\n\tcc x</code></pre>"),
        ("- a\n- b\n\nc", "<ul><li><p>a</p></li><li><p>b</p></li></ul><p>c</p>"),
        ("3. a\n4. b", '<ol start="3"><li><p>a</p></li><li><p>b</p></li></ol>'),
        ("- a\n  - b\n    - c\n- d", "<ul><li><p>a</p>[[b[[c]]]]</li><li><p>d</p></li></ul>"),
        ("1. a\n  - b\n2. c", '<ol start="1"><li><p>a</p>[[b]]</li><li><p>c</p></li></ol>'),
        ("- a\n\t- b", "<ul><li><p>a</p>[[b]]</li></ul>"),
        ("- a\n\n  more\n\n  ```\n  x\n  ```", "<ul><li><p>a</p><p>more</p><pre><code>x</code></pre></li></ul>"),
        ("1. a\n```\nx\n```\n2. b", '<ol start="1">{a}</ol><pre><code>x</code></pre><ol start="2">{b}</ol>'),
        ("text\n- a\ntext\n1986. was", "<p>text</p><ul><li><p>a\ntext\n1986. was</p></li></ul>"),
        ("> a\n> > b\n\nc", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><p>c</p>"),
        ("[a *b*](https://x.y/z)", f'<p><a href="https://x.y/z" {LINK}>a <em>b</em></a></p>'),
        ("[*a https://b.c*](https://x.y)", f'<p><a href="https://x.y" {LINK}><em>a https://b.c</em></a></p>'),
        ("[![p](https://b.c)](https://x.y)", f'<p><a href="https://x.y" {LINK}>![p](https://b.c)</a></p>'),
        ("see https://x.y/(a)_b.", f'<p>see <a href="https://x.y/(a)_b" {LINK}>https://x.y/(a)_b</a>.</p>'),
        ("(http://x.y)", f'<p>(<a href="http://x.y" {LINK}>http://x.y</a>)</p>'),
        ("![alt](https://x.y/i.png)", f'<p><a href="https://x.y/i.png" {LINK}>alt</a></p>'),
        ("[1] [a](b) [c]: d", "<p>[1] [a](b) [c]: d</p>"),
        ("a | b\nc", "<p>a | b\nc</p>"),
    ],
)
def test_markdown(page: Any, text: str, html: str) -> None:
    shown = show(page, text).replace('<figure class="code">', "").replace("</figure>", "")
    for letter in "abc":  # short forms of the table above
        item = f"<li><p>{letter}</p>"
        html = html.replace(f"{{{letter}}}", f"{item}</li>").replace(f"[[{letter}", f"<ul>{item}")
    assert shown == html.replace("]]", "</li></ul>")


def test_tables(page: Any) -> None:
    shown = show(page, "| a | b\\|c |\n|:-:|--:|\n| `1` |\n| 2 | 3 | 4 |\n\nend").replace(' class=""', "")
    assert shown == (
        '<div class="table"><table><thead><tr><th class="center">a</th><th class="right">b|c</th></tr></thead><tbody>'
        '<tr><td class="center"><code>1</code></td><td class="right"></td></tr>'
        '<tr><td class="center">2</td><td class="right">3</td></tr></tbody></table></div><p>end</p>'
    )


HOSTILE = [
    "<script>window.hit = 1</script>",
    "<img src=x onerror='window.hit=1'>",
    "[x](javascript:window.hit=1)",
    "[x](JaVaScRiPt:alert(1)) [y](data:text/html,<script>1</script>) [z](//evil.test)",
    "[x](https://a.b/\" onclick=\"window.hit=1)",
    "```<script>\n</code></pre><script>window.hit=1</script>\n```",
    "| <b>a</b> |\n|---|\n| <svg onload=window.hit=1> |",
    "# <iframe srcdoc='<script>parent.hit=1</script>'>",
    "- <style>*{display:none}</style>",
    "https://a.b/\"onmouseover=\"window.hit=1",
    "&lt;b&gt; &amp; &#106;",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_what_looks_like_html_stays_text(page: Any, text: str) -> None:
    check = """async ([folder, text]) => {
      const { MarkdownView } = await import(`${folder}/markdown_view.js`);
      const view = new MarkdownView();
      view.update(text);
      document.body.append(view.node);
      const nodes = [...view.node.querySelectorAll("*")];
      const links = nodes.filter((node) => node.tagName === "A").map((node) => node.protocol);
      const events = nodes.flatMap((node) => node.getAttributeNames()).filter((name) => name.startsWith("on"));
      const tags = [...new Set(nodes.map((node) => node.tagName))];
      const result = { tags, links, events, text: view.node.textContent, hit: window.hit ?? null };
      view.node.remove();
      return result;
    }"""
    found = page.evaluate(check, [MODULES, text])
    allowed = "P A H1 UL LI CODE PRE FIGURE FIGCAPTION SPAN BUTTON DIV TABLE THEAD TBODY TR TH TD"
    assert set(found["tags"]) <= set(allowed.split())
    assert set(found["links"]) <= {"https:", "http:", "mailto:"}
    assert found["events"] == [] and found["hit"] is None
    if text.startswith(("<", "&")):
        assert found["text"] == text


ALL = (
    "# T\n\nHello **you** `c`\n\n- a\n  1. b\n- c\n\n```py\nx = '*'\n```\n\n"
    "| a |\n|---|\n| 1 |\n\n> q\n\nhttps://a.b end"
)


def test_a_text_that_grows_ends_as_the_whole_one(page: Any) -> None:
    steps = [ALL[:end] for end in range(1, len(ALL) + 1)]
    assert show(page, *steps) == show(page, ALL)
    assert show(page, ALL, "other") == "<p>other</p>" and show(page, ALL, "") == ""


def test_finished_blocks_stay_while_a_text_grows(page: Any) -> None:
    same = """async (folder) => {
      const { MarkdownView } = await import(`${folder}/markdown_view.js`);
      const view = new MarkdownView();
      view.update("one\\n\\n```\\ncode\\n```\\n\\nla");
      const [first, second, third] = view.node.children;
      view.update("one\\n\\n```\\ncode\\n```\\n\\nlast");
      const now = view.node.children;
      return [now[0] === first, now[1] === second, now[2] === third, now[2].textContent];
    }"""
    assert page.evaluate(same, MODULES) == [True, True, False, "last"]


@pytest.mark.parametrize(
    "text",
    ["*a " * 9000, "x " + "`" * 9000, "[" * 30000, "> " * 3000 + "x", "- " * 3000 + "x", "**a** " * 5000, "_" * 50000,
     "`a ``b " * 5000, "| a " * 5000 + "\n" + "|-" * 5000, "1. a\n" * 5000, "\\" * 30000, "http://" * 5000,
     "[a](" * 5000, "\n" * 50000, "#" * 50000, "  " * 30000 + "x"],
    ids=lambda text: text[:8],
)  # fmt: skip
def test_strange_texts_are_shown_nonetheless(page: Any, text: str) -> None:
    count = """async ([folder, text]) => {
      const { MarkdownView } = await import(`${folder}/markdown_view.js`);
      const view = new MarkdownView();
      view.update(text);
      return view.node.textContent.replace(/[^a-z]/g, "").length;
    }"""
    assert page.evaluate(count, [MODULES, text]) == sum(map(str.isalpha, text))
