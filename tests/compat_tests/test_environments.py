"""Folders with programs are filled once, and again when the list of what they hold changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.environments import InstallError, install, is_installed


def test_a_folder_is_filled_again_when_its_list_changes(tmp_path: Path) -> None:
    packages, folder = tmp_path / "requirements.txt", tmp_path / "environment"
    note = [["sh", "-c", f"echo x >>{folder}/runs"]]
    packages.write_text("a==1")
    for _ in range(2):
        install(folder, packages, note)
    assert (folder / "runs").read_text() == "x\n" and is_installed(folder, packages)
    packages.write_text("a==2")
    assert not is_installed(folder, packages)
    install(folder, packages, note)
    assert (folder / "runs").read_text() == "x\nx\n"


def test_what_failed_is_told_and_tried_again(tmp_path: Path) -> None:
    packages, folder = tmp_path / "requirements.txt", tmp_path / "environment"
    packages.write_text("a==1")
    with pytest.raises(InstallError, match="no such package"):
        install(folder, packages, [["sh", "-c", "echo no such package >&2; exit 1"]])
    assert not is_installed(folder, packages)
    install(folder, packages, [["true"]])
    assert is_installed(folder, packages)
