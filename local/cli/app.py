"""Entry point of the `indexmill` command. Each command has its own module, with imports at run time."""

from __future__ import annotations

import sys

import typer

from local.cli import (
    audit,
    callers,
    cancel,
    chaos,
    corpora,
    crawls,
    delete,
    demo,
    doctor,
    documents,
    down,
    events,
    invoke,
    jobs,
    limits,
    logs,
    release,
    replay,
    retry,
    search,
    status,
    submit,
    trace,
    up,
)
from local.cli.terminal import EXIT_FAILED, Failure, print_error

_NAME = "indexmill"
_HELP = """Indexmill on this machine: the whole cloud without Docker or an account.

Examples:

  indexmill demo                          index a little web site, search it, clean up

  indexmill up --detach                   start everything and keep it running

  indexmill submit https://example.com/   index a page

  indexmill crawl https://example.com/    index a page and those that it leads to

  indexmill search "opening hours"        search what was indexed

  indexmill documents list                list what was indexed

  indexmill jobs --status failed          list jobs

  indexmill trace JOB_ID                  see where a job's time went

  indexmill doctor                        see what is wrong on this machine

  indexmill chaos                         break everything, then check every promise

Exit codes, of every command:

  0  success

  1  the work failed: a job or a function, or doctor found something wrong

  2  wrong usage: an unknown option, function or event, a parameter or URL that is refused

  3  no stack is running

Shell completion: indexmill --install-completion
"""

app = typer.Typer(
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    up,
    down,
    status,
    submit,
    search,
    jobs,
    cancel,
    delete,
    retry,
    replay,
    trace,
    logs,
    invoke,
    events,
):
    app.command(command.__name__.rpartition(".")[2])(command.run)
for command in (limits, doctor, demo, chaos, release):
    app.command(command.__name__.rpartition(".")[2])(command.run)
app.command("crawl")(crawls.crawl)
app.command("sitemap")(crawls.sitemap)
app.add_typer(audit.audit, name="audit")
app.add_typer(documents.documents, name="documents")
app.add_typer(callers.callers, name="callers")
app.add_typer(corpora.corpora, name="corpora")
app.add_typer(callers.maintenance, name="maintenance")


def main() -> None:
    """Run the command line."""
    try:
        app(prog_name=_NAME)
    except Failure as failure:
        print_error(str(failure))
        sys.exit(failure.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
