"""The web page over HTTP: its files, what caches and browsers are told about them, and who may have them."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from flask.testing import FlaskClient

import pyjet.server
from pyjet.server.app import create_app
from pyjet.server.options import ServerOptions
from pyjet.server.static_page import static_files
from tests.scripted_engine import ScriptedEngine
from tests.server.scripted import make_client, said

SOURCES = Path(pyjet.server.__file__).parent / "static"
PATHS = sorted(static_files())
ASSETS = [path for path in PATHS if re.match(r"/_app/[0-9a-f]+/", path)]


def page_client(**options: object) -> FlaskClient:
    return make_client(ScriptedEngine(said("x")), **options)


@pytest.fixture(scope="module")
def client() -> FlaskClient:
    return page_client()


def test_every_source_file_has_an_address() -> None:
    names = {path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*") if path.is_file()}
    fixed = {"index.html", "sw.js", "manifest.webmanifest"}
    assert names - fixed == {path.split("/", 3)[3] for path in ASSETS}
    assert {f"/{name}" for name in fixed} < set(PATHS)


def test_every_module_is_used_and_found() -> None:
    modules = {path.name: path.read_text() for path in (SOURCES / "js").iterdir()}
    seen, to_do = set(), ["main.js"]
    while to_do:
        name = to_do.pop()
        if name not in seen:
            seen.add(name)
            to_do += re.findall(r'from "\./([^"]+)"', modules[name])
    assert seen == set(modules)


def test_what_the_page_names_is_there(client: FlaskClient) -> None:
    page = client.get("/").get_data(as_text=True)
    names = re.findall(r'(?:href|src)="([^"#]+)"', page)
    assert len(names) >= 5
    manifest = client.get("/manifest.webmanifest").get_json(force=True)
    for name in [*names, *(icon["src"] for icon in manifest["icons"])]:
        assert client.get(f"/{name}").status_code == 200, name


def test_nothing_is_inline_and_no_text_becomes_html() -> None:
    page = (SOURCES / "index.html").read_text()
    assert re.findall(r"<style|style=|\son[a-z]+=|javascript:", page) == []
    assert re.findall(r"<script(?![^>]*src=)", page) == []
    risky = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|setHTML|srcdoc"
    for path in (SOURCES / "js").iterdir():
        assert re.findall(risky, path.read_text()) == [], path.name


def test_nothing_comes_from_elsewhere() -> None:
    for path in SOURCES.rglob("*"):
        if path.is_file():
            addresses = re.findall(r"https?://[\w.]+", path.read_text())
            assert set(addresses) <= {"http://www.w3.org"}, path.name  # the name space of SVG


@pytest.mark.parametrize("path", PATHS)
def test_headers(client: FlaskClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200 and answer.headers["X-Content-Type-Options"] == "nosniff"
    wanted = "public, max-age=31536000, immutable" if path in ASSETS else "no-cache"
    assert answer.headers["Cache-Control"] == wanted
    assert answer.headers["Vary"] == "Accept-Encoding" and "Content-Encoding" not in answer.headers
    head = client.head(path)
    assert head.get_data() == b"" and head.headers["ETag"] == answer.headers["ETag"]


@pytest.mark.parametrize("path", ["/", "/index.html"])
def test_the_page_is_isolated(client: FlaskClient, path: str) -> None:
    headers = client.get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy.pop("default-src") == "'none'"
    assert set(policy.values()) == {"'self'", "'none'"}
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"


def test_types(client: FlaskClient) -> None:
    types = {Path(path).suffix: client.get(path).headers["Content-Type"] for path in PATHS}
    assert types[".js"].startswith("text/javascript") and types[".css"].startswith("text/css")
    assert types[".svg"] == "image/svg+xml" and types[".webmanifest"] == "application/manifest+json"
    assert types[""] == types[".html"] == "text/html; charset=utf-8"


@pytest.mark.parametrize("path", ["/", ASSETS[0], "/sw.js"])
@pytest.mark.parametrize("encoding", ["gzip", "gzip, br", "br;q=1, gzip;q=0.5"])
def test_compression(client: FlaskClient, path: str, encoding: str) -> None:
    plain = client.get(path)
    packed = client.get(path, headers={"Accept-Encoding": encoding})
    assert packed.headers["Content-Encoding"] == "gzip" and packed.headers["ETag"] != plain.headers["ETag"]
    assert gzip.decompress(packed.get_data()) == plain.get_data()


@pytest.mark.parametrize("encoding", ["", "br", "identity", "gzip;q=0"])
def test_no_compression_for_those_who_do_not_want_it(client: FlaskClient, encoding: str) -> None:
    answer = client.get("/", headers={"Accept-Encoding": encoding})
    assert "Content-Encoding" not in answer.headers and answer.get_data().startswith(b"<!doctype html>")


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
@pytest.mark.parametrize("form", ["{}", "W/{}", '"other", {}', "*"])
def test_unchanged_files_are_not_sent_again(client: FlaskClient, encoding: str, form: str) -> None:
    headers = {"Accept-Encoding": encoding}
    for path in ("/", ASSETS[0]):
        tag = client.get(path, headers=headers).headers["ETag"]
        again = client.get(path, headers={**headers, "If-None-Match": form.format(tag)})
        assert again.status_code == 304 and again.get_data() == b"" and again.headers["ETag"] == tag
        assert client.get(path, headers={**headers, "If-None-Match": '"other"'}).status_code == 200


def test_other_versions_are_unknown(client: FlaskClient) -> None:
    version = client.get("/_app/version.json").get_json()["version"]
    assert f"/_app/{version}/page.css" in ASSETS
    assert client.get("/build.json").get_json() == {"version": version}
    for path in ("/_app/0000000000000000/page.css", f"/_app/{version}/index.html", f"/_app/{version}/js", "/page.css"):
        assert client.get(path).status_code == 404, path


def test_the_page_needs_neither_key_nor_model() -> None:
    guarded = page_client(api_keys=["k"])
    loading = create_app(None, ServerOptions(api_keys=["k"])).test_client()
    for path in PATHS:
        assert guarded.get(path).status_code == loading.get(path).status_code == 200, path
    assert guarded.get("/_app/none.js").status_code == 401
    assert loading.get("/_app/none.js").status_code == 503


def test_the_page_moves_with_the_prefix() -> None:
    moved = page_client(api_prefix="/p/x", api_keys=["k"])
    for path in PATHS:
        assert moved.get(f"/p/x{path}").status_code == 200, path
        assert moved.get(path, headers={"X-Api-Key": "k"}).status_code == 404, path


def test_without_the_page_only_the_clean_up_is_left() -> None:
    client = page_client(ui=False)
    for path in set(PATHS) - {"/sw.js"}:
        assert client.get(path).status_code == 404, path
    assert "unregister" in client.get("/sw.js").get_data(as_text=True)
    assert client.get("/props").get_json()["ui"] is False


def test_own_files_replace_the_page(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<script>mine()</script>")
    (tmp_path / "a b.txt").write_text("text")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "index.html").write_text("sub")
    client = page_client(path=str(tmp_path))
    page = client.get("/")
    assert page.get_data() == b"<script>mine()</script>"
    assert "Content-Security-Policy" not in page.headers  # whose page it is decides what it may do
    assert client.get("/a%20b.txt").get_data() == b"text" and client.get("/sub/").get_data() == b"sub"
    assert client.get(ASSETS[0]).status_code == client.get("/manifest.webmanifest").status_code == 404
    assert client.get("/%00").status_code == client.get("/a%2f..%2f..%2fx").status_code == 404
    assert "unregister" in client.get("/sw.js").get_data(as_text=True)
    (tmp_path / "sw.js").write_text("mine")
    assert client.get("/sw.js").get_data() == b"mine"


def test_own_files_need_a_key_but_for_the_page(tmp_path: Path) -> None:
    for name in ("index.html", "a.js"):
        (tmp_path / name).write_text("x")
    client = page_client(path=str(tmp_path), api_keys=["k"])
    assert client.get("/").status_code == client.get("/index.html").status_code == 200
    assert client.get("/a.js").status_code == client.get(ASSETS[0]).status_code == 401
    assert client.get("/a.js", headers={"Authorization": "Bearer k"}).status_code == 200


def test_settings_of_the_page_are_in_props() -> None:
    settings = {"temperature": 0.5, "theme": "dark"}
    assert page_client(ui_config=settings).get("/props").get_json()["ui_settings"] == settings
    assert json.loads(page_client().get("/props").get_data())["ui_settings"] == {}
