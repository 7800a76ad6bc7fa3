"""The command's entry point. Each command has a file of its own and imports what it needs when it runs."""

from __future__ import annotations

import sys

import typer

from local.cli import demo, down, logs, search, status, submit, up
from local.cli.terminal import EXIT_FAILED, Failure, complain

_HELP = """Indexmill on this machine: the whole cloud without Docker or an account.

Examples:

  indexmill demo                          index a little web site, search it, clean up

  indexmill up --detach                   start everything and keep it running

  indexmill submit https://example.com/   index a page

  indexmill search "opening hours"        search what was indexed

Exit codes: 0 success, 1 the work failed, 2 wrong usage, 3 no stack is running.
"""

app = typer.Typer(
    help=_HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (up, down, status, submit, search, logs, demo):
    app.command(command.__name__.rpartition(".")[2])(command.run)


def main() -> None:
    """Run the command line."""
    try:
        app()
    except Failure as failure:
        complain(str(failure))
        sys.exit(failure.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
