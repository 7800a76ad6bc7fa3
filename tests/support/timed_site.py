"""A web site on 127.0.0.1 that notes when it is asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class TimedSite:
    """Pages under every path; `asked` are the monotonic seconds of all requests, robots.txt included."""

    port: int = 0
    asked: list[float] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, name: object) -> str:
        return f"http://{self.host}/{name}"

    def page_times(self) -> list[float]:
        """Return when pages were asked for, without robots.txt."""
        times = zip(self.paths, self.asked, strict=True)
        return [at for path, at in times if path != "/robots.txt"]


def excess(asked: Sequence[float], rate: float, burst: int) -> float:
    """Return the requests in the worst window beyond burst + time x rate; at most 0 for a polite crawler."""
    times, worst = sorted(asked), float("-inf")
    for first, start in enumerate(times):
        for last in range(first, len(times)):
            worst = max(worst, last - first + 1 - burst - (times[last] - start) * rate)
    return worst


@contextmanager
def timed_site(port: int = 0, took_s: float = 0.0) -> Iterator[TimedSite]:
    """Serve a site whose pages take `took_s` each."""
    site, pause = TimedSite(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            site.asked.append(time.monotonic())
            site.paths.append(self.path)
            body, status = f"<title>{self.path}</title><main><p>Words of {self.path}.</p></main>", 200
            if self.path == "/robots.txt":
                body, status = "", 404
            elif took_s:
                pause.wait(took_s)
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    site.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        pause.set()
        server.shutdown()
        server.server_close()
        thread.join()
