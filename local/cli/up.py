"""`indexmill up`."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from local.cli.terminal import (
    DEFAULT_STATE,
    EXIT_FAILED,
    EXIT_USAGE,
    Failure,
    JsonOption,
    StateOption,
    console,
    print_json,
)

if TYPE_CHECKING:
    from local.stack.options import StackOptions

EagerPollingOption = Annotated[
    bool,
    typer.Option(
        "--eager-polling", help="Take messages as they come, as Lambda's pollers do; batches fill less."
    ),
]
PollersOption = Annotated[
    int,
    typer.Option(
        min=1, max=10, help="Receives that wait at each queue; Lambda has 5, which share the messages."
    ),
]
CpuShareOption = Annotated[
    bool,
    typer.Option("--cpu-share", help="Give each function Lambda's CPU for its memory: one for 1,769 MB."),
]
DatabaseProxyOption = Annotated[
    str,
    typer.Option(metavar="HOST:PORT", help="Pooler before Postgres, for all but the owner's functions."),
]
RendererOption = Annotated[
    bool,
    typer.Option(
        "--renderer", help="Run the scripts of pages that are empty without them, in this machine's Chromium."
    ),
]
SecretsManagerOption = Annotated[
    bool,
    typer.Option("--secrets-manager", help="Functions read their secrets from Secrets Manager, as on AWS."),
]


def run(
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when it is ready.")] = False,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
    port: Annotated[
        int, typer.Option(help="Port of the gateway; 0 takes that of the last start, if free.")
    ] = 0,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter", "-p", metavar="KEY=VALUE", help="A parameter of template.yaml; repeatable."
        ),
    ] = None,
    site_root: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Serve this folder as the web site.", file_okay=False)
    ] = None,
    eager_polling: EagerPollingOption = False,
    pollers: PollersOption = 1,
    cpu_share: CpuShareOption = False,
    postgres_port: Annotated[int, typer.Option(help="Port of Postgres; 0 takes a free one.")] = 0,
    database_proxy: DatabaseProxyOption = "",
    secrets_manager: SecretsManagerOption = False,
    renderer: RendererOption = False,
) -> None:
    """Start the whole cloud on this machine.

    Without --detach it runs until Ctrl-C. Data stays in the state folder for the next start.

    Examples:

      indexmill up

      indexmill up --detach --json

      indexmill up --port 8080 --parameter ScrapeTimeout=5 --parameter ScrapeVisibility=30
    """
    began = time.monotonic()
    if database_proxy and not re.fullmatch(r"[\w.-]+:\d{1,5}", database_proxy):
        raise Failure(f"--database-proxy {database_proxy} is no HOST:PORT", EXIT_USAGE)
    from local.stack.options import StackOptions

    options = StackOptions(
        state.resolve(),
        port=port,
        overrides=_overrides(parameter or []),
        site_root=_folder(site_root),
        eager_polling=eager_polling,
        pollers=pollers,
        cpu_share=cpu_share,
        began=began,
        postgres_port=postgres_port,
        database_proxy=database_proxy,
        secrets_manager=secrets_manager,
        renderer=_renderer() if renderer else "",
    )
    if detach:
        _detached(options, as_json=as_json)
    else:
        _foreground(options, as_json=as_json)


def _overrides(parameters: list[str]) -> dict[str, str]:
    from local.template.parameters import ParameterError, parse_overrides

    try:
        return parse_overrides(parameters)
    except ParameterError as error:
        raise Failure(f"--parameter {error}", EXIT_USAGE) from error


def _renderer() -> str:
    from local.stack.chromium import chromium

    found = chromium()
    if found is None:
        raise Failure(
            "--renderer needs a Chromium: apt-get install chromium, or name one by INDEXMILL_CHROMIUM",
            EXIT_USAGE,
        )
    return f"chromium:{found}"


def _folder(site_root: Path | None) -> Path | None:
    if site_root is not None and not site_root.is_dir():
        raise Failure(f"--site-root {site_root} is no folder", EXIT_USAGE)
    return None if site_root is None else site_root.resolve()


def _detached(options: StackOptions, *, as_json: bool) -> None:
    from local.stack.detached import StartFailed, start_detached

    try:
        stack = start_detached(options)
    except StartFailed as error:
        code = EXIT_USAGE if error.usage else EXIT_FAILED
        raise Failure(f"the stack did not start: {error}", code) from error
    except KeyboardInterrupt:
        raise Failure("interrupted; stopping what was started") from None
    if as_json:
        print_json(stack.info)
        return
    show(stack.info)
    where = "" if options.state == DEFAULT_STATE else f" --state {options.state}"
    console().print(f"It runs in the background; stop it with: [bold]indexmill down[/]{where}")


def _foreground(options: StackOptions, *, as_json: bool) -> None:
    from rich.markup import escape
    from rich.status import Status

    from local.stack.preparation import WrongUsage
    from local.stack.process import serve
    from local.template.intrinsics import TemplateError

    screen = console()
    line = Status("starting…", console=screen)

    def ready(info: dict[str, Any]) -> None:
        line.stop()
        if as_json:
            print_json(info)
            return
        show(info)
        screen.print("Stop it with Ctrl-C.")

    def report(text: str) -> None:
        screen.print(f"[yellow]•[/] {escape(text)}")

    line.start()
    try:
        asyncio.run(serve(options, on_ready=ready, report=report))
    except (WrongUsage, TemplateError) as error:
        raise Failure(str(error), EXIT_USAGE) from error
    except Exception as error:  # every failure of any part ends here, reported in one sentence
        raise Failure(str(error) or type(error).__name__) from error
    finally:
        line.stop()
    screen.print("stopped")


def show(info: dict[str, Any]) -> None:
    """Print the addresses of the stack."""
    screen = console()
    screen.print(f"[green]ready in {info['ready_s']:.1f} s[/]")
    rows = {
        "gateway": info["gateway"],
        "API docs": f"{info['gateway']}/docs",
        "API key": info["api_key"],
        "ops key": info["ops_key"],
        "web site": info["site"],
        "Postgres": info["database_url"],
        "AWS endpoint": info["aws_endpoint"],
        "logs": f"{info['state']}/logs",
    }
    for name, value in rows.items():
        screen.print(f"  {name:<13} {value}")
    for warning in info["warnings"]:
        screen.print(f"[yellow]•[/] {warning}")
