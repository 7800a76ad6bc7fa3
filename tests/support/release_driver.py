"""Run the functions of one release in a process: a JSON command per line in, an answer per line out.

The release is the tree whose library is on PYTHONPATH; only its handlers are used, so that any release works.
`{"deploy": {name: {"file", "attribute", "environment"}}}` sets the functions, which load at their next
invocation. `{"invoke": name, "event": …}` runs one. The answer is `{"result": …}` or `{"error": traceback}`.

Functions invoke each other through a Lambda endpoint in this process; its address is the result of a deploy.
An asynchronous invocation runs before it is answered, and every event source mapping is enabled.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_INVOCATIONS = "/2015-03-31/functions/"


class Context:
    """Lambda's context with a minute left."""

    aws_request_id = "upgrade"
    function_name = "function"
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:function"
    memory_limit_in_mb = 512

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        """Return the milliseconds left."""
        return 60_000


class UnknownFunction(Exception):
    """No function of that name is deployed."""


class Functions:
    """The deployed functions, by logical id."""

    def __init__(self) -> None:
        self._deployed: dict[str, dict[str, Any]] = {}
        self._handlers: dict[str, Callable[..., Any]] = {}
        self._loading = threading.Lock()

    def deploy(self, deployed: dict[str, dict[str, Any]]) -> None:
        """Replace all functions; one that is unchanged stays warm."""
        unchanged = {name for name in deployed if deployed[name] == self._deployed.get(name)}
        self._handlers = {name: self._handlers[name] for name in unchanged & set(self._handlers)}
        self._deployed = deployed

    def invoke(self, name: str, event: Any) -> Any:
        """Run one function; raises UnknownFunction, and the errors of its handler."""
        with self._loading:
            if name not in self._deployed:
                raise UnknownFunction(name)
            if name not in self._handlers:
                self._handlers[name] = _load(name, **self._deployed[name])
        return self._handlers[name](event, Context())


def _load(name: str, file: str, attribute: str, environment: dict[str, str]) -> Callable[..., Any]:
    os.environ.update(environment)
    spec = importlib.util.spec_from_file_location(f"function_{name}", file)
    if spec is None or spec.loader is None:
        raise ImportError(file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    handler: Callable[..., Any] = getattr(module, attribute)
    return handler


class LambdaEndpoint(BaseHTTPRequestHandler):
    """Lambda's Invoke and event source mappings, as far as the functions call them."""

    protocol_version = "HTTP/1.1"
    functions: Functions

    def do_POST(self) -> None:
        """Invoke a function."""
        name = self.path.removeprefix(_INVOCATIONS).partition("/")[0]
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            result = self.functions.invoke(name, event)
        except UnknownFunction:
            self._answer(404, {"Message": name}, {"x-amzn-ErrorType": "ResourceNotFoundException"})
        except Exception as error:  # noqa: BLE001 - Lambda answers any error of a handler
            traceback.print_exc()
            document = {"errorMessage": str(error), "errorType": type(error).__name__, "requestId": "upgrade"}
            self._answer(200, document, {"X-Amz-Function-Error": "Unhandled"})
        else:
            asynchronous = self.headers.get("X-Amz-Invocation-Type") == "Event"
            self._answer(202 if asynchronous else 200, result, {})

    def do_GET(self) -> None:
        """Read an event source mapping."""
        self._answer(200, {"State": "Enabled"}, {})

    def do_PUT(self) -> None:
        """Change an event source mapping: it stays enabled."""
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def _answer(self, status: int, document: Any, headers: dict[str, str]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Serve standard input; the functions' own output goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    functions = LambdaEndpoint.functions = Functions()
    server = ThreadingHTTPServer(("127.0.0.1", 0), LambdaEndpoint)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    asyncio.set_event_loop(asyncio.new_event_loop())  # the main thread has one on Lambda
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if "deploy" in command:
                os.environ["AWS_ENDPOINT_URL_LAMBDA"] = endpoint
                functions.deploy(command["deploy"])
                answer = {"result": endpoint}
            else:
                answer = {"result": functions.invoke(command["invoke"], command["event"])}
        except Exception:  # noqa: BLE001 - the test that sent the command fails with it
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
