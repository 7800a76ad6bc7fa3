"""Client of the Chrome DevTools Protocol: commands and events of a browser, over one WebSocket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

Event = dict[str, Any]
"""Parameters of an event."""
_TOO_BIG: Final = 1009
"""Close code for a message over the limit."""


class BrowserGoneError(Exception):
    """The connection to the browser ended, or could not be made."""

    def __init__(self, *, too_big: bool = False) -> None:
        """`too_big`: it was ended from here, since the browser sent more than the limit in one message."""
        super().__init__()
        self.too_big = too_big


class CommandError(Exception):
    """The browser refused a command."""


class Cdp:
    """One connection. A `session` is that of one page; "" is the browser itself."""

    def __init__(self, socket: ClientConnection, on_end: Callable[[BrowserGoneError], None]) -> None:
        """`read` has to run until the connection is not used any more."""
        self._socket = socket
        self._on_end = on_end
        self._number = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._listeners: dict[tuple[str, str], Callable[[Event], None]] = {}
        self._posted: set[asyncio.Task[None]] = set()
        self._gone: BrowserGoneError | None = None

    def on(self, event: str, session: str, listener: Callable[[Event], None]) -> None:
        """Call `listener` with each such event of `session`."""
        self._listeners[session, event] = listener

    async def send(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Return what the command answers. Raises CommandError and BrowserGoneError."""
        if self._gone is not None:
            raise self._gone
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            await self._socket.send(json.dumps(message))
            return await answer
        except ConnectionClosed as error:
            raise BrowserGoneError from error
        finally:
            self._answers.pop(number, None)

    def post(self, method: str, session: str = "", **parameters: Any) -> None:
        """Send a command whose answer does not matter, without waiting."""

        async def sent() -> None:
            with suppress(CommandError, BrowserGoneError):
                await self.send(method, session, **parameters)

        task = asyncio.create_task(sent())
        self._posted.add(task)
        task.add_done_callback(self._posted.discard)

    async def read(self) -> None:
        """Hand out answers and events until the connection ends."""
        gone = BrowserGoneError()
        try:
            async for message in self._socket:
                self._take(json.loads(message))
        except ConnectionClosed as error:
            gone = BrowserGoneError(too_big=error.sent is not None and error.sent.code == _TOO_BIG)
        except (LookupError, TypeError, ValueError) as error:
            # Not the protocol.
            gone.__cause__ = error
        finally:
            self._gone = gone
            self._on_end(gone)
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(gone)

    def _take(self, message: dict[str, Any]) -> None:
        answer = self._answers.get(message.get("id", 0))
        if answer is None:
            listener = self._listeners.get((message.get("sessionId", ""), message.get("method", "")))
            if listener is not None:
                listener(message["params"])
        elif not answer.done():
            if "error" in message:
                answer.set_exception(CommandError(message["error"].get("message", "")))
            else:
                answer.set_result(message["result"])


@asynccontextmanager
async def opened(
    url: str, *, max_bytes: int, open_timeout_s: float, on_end: Callable[[BrowserGoneError], None]
) -> AsyncIterator[Cdp]:
    """Connect to the browser at the WebSocket `url`; it closes the connection when the block ends.

    `max_bytes` bounds one message of the browser; `on_end` is called when the connection ended.
    Raises BrowserGoneError.
    """
    try:
        # No proxy of the environment, and no pings: a busy browser is not a lost one, every wait has a limit.
        socket = await connect(
            url,
            max_size=max_bytes,
            compression=None,
            proxy=None,
            open_timeout=open_timeout_s,
            ping_interval=None,
            close_timeout=1.0,
        )
    except (OSError, TimeoutError, WebSocketException) as error:
        raise BrowserGoneError from error
    cdp = Cdp(socket, on_end)
    reader = asyncio.create_task(cdp.read())
    try:
        yield cdp
    finally:
        await socket.close()
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
