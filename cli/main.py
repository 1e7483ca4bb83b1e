"""The click group; each command lives in its own module and is imported when it is used."""

from __future__ import annotations

import importlib

import click

from pyjet import __version__

# command -> module of this package that has it under the same name
COMMANDS = {"bench": "bench", "doctor": "doctor", "inspect": "inspect_file", "run": "run", "serve": "serve"}


class LazyGroup(click.Group):
    """Imports a command's module on demand, so that `doctor` works when something else cannot be imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f".{COMMANDS[name]}", __package__), name)
        assert isinstance(command, click.Command)
        return command


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="pyjet")
def main() -> None:
    """Serve a language model to several coding agents on this machine.

    The server speaks llama-server's command line and HTTP API (`pyjet serve`, or `pyjet-server`
    where a program expects llama-server). The other commands look at files and at this machine.
    Without -m a small embedded model is used, so everything can be tried at once.
    """


if __name__ == "__main__":
    main()
