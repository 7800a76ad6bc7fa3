"""Parse commands of SAM CLI by its own parser, options of samconfig.toml included; run by .venv-sam's Python.

    .venv-sam/bin/python tests/support/sam_commands.py < commands.json

Standard input is a list of commands without "sam", each a list of words; standard output a list of
`{"options": …}` or `{"error": …}`, one for each. No command runs. This repository cannot be imported here.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def parsed(words: list[str]) -> dict[str, Any]:
    """Return the options that SAM's parser makes of a command, or the message with which it refuses it."""
    import click
    from samcli.cli.context import Context
    from samcli.cli.main import cli

    # Without a context of SAM's own its commands have no options.
    with click.Context(cli, info_name="sam", obj=Context()) as context:
        try:
            name, command, rest = cli.resolve_command(context, words)
            options = command.make_context(name, rest, parent=context).params
        except click.ClickException as error:
            return {"error": error.format_message()}
    return {"options": {key: value for key, value in options.items() if value is not None}}


def main() -> None:
    """Answer the commands of standard input."""
    json.dump([parsed(words) for words in json.load(sys.stdin)], sys.stdout, default=str)


if __name__ == "__main__":
    main()
