"""Small web site to index: the built-in pages, or any folder of files.

Files are served with their content type (HTML when the name has no known extension), an ETag, and 304 for a
matching If-None-Match. Besides: `/robots.txt`, one redirect, and pages that misbehave on purpose:

    /slow?seconds=2          a delayed response
    /status/503?retry_after=1    any status
    /flaky/NAME?fails=2      503 for the first two requests, then a page
    /control                 number of requests per path
"""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from aiohttp import web

from local.backends.serving import serve, stand_in_parser
from local.site.catalogue import PAGES_DIR, REDIRECTS, ROBOTS_TXT

_TYPES = {".md": "text/markdown", ".txt": "text/plain", ".html": "text/html", ".htm": "text/html"}
_MAX_SLOW_S = 120.0


@dataclass(frozen=True, slots=True)
class StoredFile:
    """File content and headers as they are sent."""

    body: bytes
    content_type: str
    etag: str


class FileSite:
    """Files below one folder by URL path, each read again when it was changed."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._files: dict[Path, tuple[tuple[int, int], StoredFile]] = {}

    def find(self, url_path: str) -> StoredFile | None:
        """Return the file for a path, or None; a path that ends in a slash means its index.html."""
        path = self._path(url_path)
        if path is None:
            return None
        status = path.stat()
        seen = (status.st_mtime_ns, status.st_size)
        if path not in self._files or self._files[path][0] != seen:
            body = path.read_bytes()
            digest = hashlib.sha256(body).hexdigest()[:16]
            self._files[path] = (seen, StoredFile(body, content_type_of(path), f'"{digest}"'))
        return self._files[path][1]

    def _path(self, url_path: str) -> Path | None:
        relative = unquote(url_path).lstrip("/")
        if "\0" in relative:
            return None
        path = (self._root / relative).resolve()
        if url_path.endswith("/") or path == self._root:
            path = path / "index.html"
        if not path.is_relative_to(self._root) or not path.is_file():
            return None
        return path


def content_type_of(path: Path) -> str:
    """Return the Content-Type header for a file name."""
    suffix = path.suffix.lower()
    media_type = _TYPES.get(suffix) or mimetypes.guess_type(path.name)[0] or "text/html"
    return f"{media_type}; charset=utf-8" if media_type.startswith("text/") else media_type


class Site:
    """HTTP application around a folder."""

    def __init__(self, files: FileSite, *, built_in: bool) -> None:
        self._files = files
        self._built_in = built_in
        self._asked: Counter[str] = Counter()

    def app(self) -> web.Application:
        """Return the application with its routes."""
        app = web.Application()
        app.router.add_get("/control", self._state)
        app.router.add_get("/slow", self._slow)
        app.router.add_get("/status/{code:[2-5][0-9][0-9]}", self._status)
        app.router.add_get("/flaky/{name}", self._flaky)
        app.router.add_get("/{path:.*}", self._file)
        return app

    async def _file(self, request: web.Request) -> web.Response:
        path = request.rel_url.raw_path
        self._asked[path] += 1
        if self._built_in and path == "/robots.txt":
            return web.Response(text=ROBOTS_TXT)
        if self._built_in and path in REDIRECTS:
            return web.Response(status=301, headers={"Location": REDIRECTS[path]})
        file = self._files.find(path)
        if file is None:
            return web.Response(status=404, text="<h1>Not found</h1>", content_type="text/html")
        headers = {"Content-Type": file.content_type, "ETag": file.etag}
        if request.headers.get("If-None-Match") == file.etag:
            return web.Response(status=304, headers={"ETag": file.etag})
        return web.Response(body=file.body, headers=headers)

    async def _slow(self, request: web.Request) -> web.Response:
        seconds = min(float(request.query.get("seconds", "1")), _MAX_SLOW_S)
        await asyncio.sleep(seconds)
        return _page("A slow page", f"This page took {seconds:g} seconds to write.")

    async def _status(self, request: web.Request) -> web.Response:
        code = int(request.match_info["code"])
        retry_after = request.query.get("retry_after")
        headers = {} if retry_after is None else {"Retry-After": retry_after}
        return web.Response(status=code, headers=headers)

    async def _flaky(self, request: web.Request) -> web.Response:
        self._asked[request.path] += 1
        if self._asked[request.path] <= int(request.query.get("fails", "1")):
            return web.Response(status=503)
        return _page("A page that got better", "The first requests failed, and this one did not.")

    async def _state(self, _request: web.Request) -> web.Response:
        return web.json_response({"requests": dict(self._asked)})


def _page(title: str, sentence: str) -> web.Response:
    html = f"<!doctype html><title>{title}</title><main><h1>{title}</h1><p>{sentence}</p></main>"
    return web.Response(text=html, content_type="text/html")


def main() -> None:
    """Serve until SIGTERM."""
    parser = stand_in_parser("web site to index")
    parser.add_argument("--root", type=Path, help="serve this folder in place of the built-in pages")
    options = parser.parse_args()
    files = FileSite(options.root or PAGES_DIR)
    serve(Site(files, built_in=options.root is None).app(), options.port)


if __name__ == "__main__":
    main()
