"""Stand-in for the Membership service: `POST /auth` in every form that it has had or is announced to have.

The key comes as `{"api_key": …}` in the body or as an `X-API-Key` header. A valid one answers 201 (legacy)
or 200 (fixed), an invalid one 409 or 401. The claims in the response grow by phase: none;
`caller_type`; also `tier` and `rate_limits`; also `caller_id` and everything else in the keys file.

The keys file is a JSON object of key to claims (or null), read again whenever it changes, so that removing a
key revokes it. `POST /control {"mode": …, "delay": seconds, "phase": 1..4, "codes": …}` changes the fields
that it names; `GET /control` returns the number of calls.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from aiohttp import web

from local.backends.serving import read_json_object, serve, stand_in_parser

MODES = ("ok", "down", "slow", "500", "garbage", "redirect", "wrong_types", "huge")

PHASES = (1, 2, 3, 4)

_CODES = {"legacy": (201, 409), "fixed": (200, 401)}
_FIELDS_BY_PHASE: dict[int, frozenset[str]] = {
    1: frozenset(),
    2: frozenset({"caller_type"}),
    3: frozenset({"caller_type", "tier", "rate_limits"}),
}
_SLOW_S = 3.0
_HUGE_BYTES = 10_000_000


class Keys:
    """Valid keys and their claims, as the file has them now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._claims: dict[str, dict[str, Any] | None] = {}

    def find(self, key: str) -> tuple[bool, dict[str, Any]]:
        """Return whether the key is valid, and its claims (an empty object when the file has none)."""
        status = self._path.stat()
        seen = (status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            self._claims = json.loads(self._path.read_text())
            self._seen = seen
        return key in self._claims, self._claims.get(key) or {}


class Membership:
    """Responses of the service in one phase and one set of status codes, and its current fault mode."""

    def __init__(self, keys: Keys, phase: int, codes: str) -> None:
        self._keys = keys
        self._phase = phase
        self._codes = codes
        self._mode = "ok"
        self._delay_s = 0.0
        self._calls = 0

    def app(self) -> web.Application:
        """Return the HTTP application."""
        app = web.Application()
        app.router.add_post("/auth", self._auth)
        app.router.add_get("/control", self._state)
        app.router.add_post("/control", self._control)
        return app

    @property
    def _valid(self) -> int:
        return _CODES[self._codes][0]

    async def _auth(self, request: web.Request) -> web.StreamResponse:
        self._calls += 1
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        if self._mode == "down":
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=503)
        if self._mode not in ("ok", "slow"):
            return self._misbehave()
        key = await _key_of(request)
        if key is None:
            return web.json_response({"detail": "api_key is required"}, status=400)
        known, claims = self._keys.find(key)
        if not known:
            return web.json_response({"detail": "Invalid API key"}, status=_CODES[self._codes][1])
        return self._welcome(claims)

    def _welcome(self, claims: dict[str, Any]) -> web.Response:
        if self._phase == 1:
            return web.Response(status=self._valid)
        answer = {"caller_type": "user", **claims}
        if self._phase in _FIELDS_BY_PHASE:
            answer = {name: value for name, value in answer.items() if name in _FIELDS_BY_PHASE[self._phase]}
        return web.json_response(answer, status=self._valid)

    def _misbehave(self) -> web.Response:
        match self._mode:
            case "garbage":
                page = "<html><title>Please sign in</title></html>"
                return web.Response(status=self._valid, text=page, content_type="text/html")
            case "redirect":
                return web.Response(status=302, headers={"Location": "/elsewhere"})
            case "wrong_types":
                claims = {"caller_id": 7, "caller_type": ["user"], "tier": {}, "scopes": "a"}
                return web.json_response(claims, status=self._valid)
            case "huge":
                return web.json_response({"padding": "x" * _HUGE_BYTES}, status=self._valid)
            case _:
                return web.json_response({"detail": "internal error"}, status=500)

    async def _state(self, _request: web.Request) -> web.Response:
        state = {"mode": self._mode, "delay": self._delay_s, "phase": self._phase, "codes": self._codes}
        return web.json_response({**state, "calls": self._calls})

    async def _control(self, request: web.Request) -> web.Response:
        body = await request.json()
        mode, phase, codes = (
            body.get("mode", self._mode),
            body.get("phase", self._phase),
            body.get("codes", self._codes),
        )
        if mode not in MODES or phase not in PHASES or codes not in _CODES:
            choices = {"mode": MODES, "phase": PHASES, "codes": tuple(_CODES)}
            return web.json_response({"detail": "no such choice", "choices": choices}, status=400)
        self._mode, self._phase, self._codes = mode, phase, codes
        self._delay_s = float(body.get("delay", _SLOW_S if mode == "slow" else 0.0))
        return await self._state(request)


async def _key_of(request: web.Request) -> str | None:
    header = request.headers.get("X-API-Key")
    if header is not None:
        return header
    try:
        key = (await read_json_object(request)).get("api_key")
    except ValueError:
        return None
    return key if isinstance(key, str) else None


def main() -> None:
    """Serve until SIGTERM."""
    parser = stand_in_parser("Membership stand-in")
    parser.add_argument("--keys", type=Path, required=True, help="JSON file: key to claims, or null")
    parser.add_argument("--phase", type=int, choices=PHASES, default=4)
    parser.add_argument("--codes", choices=tuple(_CODES), default="fixed")
    options = parser.parse_args()
    serve(Membership(Keys(options.keys), options.phase, options.codes).app(), options.port)


if __name__ == "__main__":
    main()
