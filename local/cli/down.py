"""`indexmill down`."""

from __future__ import annotations

from local.cli.terminal import DEFAULT_STATE, EXIT_NO_STACK, Failure, StateOption, console


def run(state: StateOption = DEFAULT_STATE) -> None:
    """Stop the stack; its data stays.

    Also ends the processes that a killed stack left running.

    Examples:

      indexmill down
    """
    from local.stack.detached import stop

    if not stop(state):
        raise Failure(f"no stack is running on {state}; there is nothing to stop", EXIT_NO_STACK)
    console().print("stopped")
