"""Child process that reads risky content: bytes on stdin, Markdown on stdout, a line of JSON on stderr.

It gets its limits as arguments and imposes them on itself before it looks at a byte.
"""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import asdict, replace

from indexmill.contracts.errors import ErrorCode, IndexmillError, failure
from indexmill.scraper.extract.content import (
    MAX_TEXT_BYTES,
    Extracted,
    Kind,
    RawContent,
    Unusable,
    Wanted,
    extract,
)


def main(arguments: list[str]) -> None:
    """Read `kind charset wanted cpu-seconds memory-bytes` from the arguments and the content from stdin.

    `wanted` are names of fields of Wanted, joined by commas.
    """
    kind, charset, wanted, cpu_s, memory = arguments
    _limit(resource.RLIMIT_CPU, int(cpu_s))
    _limit(resource.RLIMIT_AS, int(memory))
    text = b""
    try:
        options = Wanted(**dict.fromkeys(filter(None, wanted.split(",")), True))
        found = extract(RawContent(sys.stdin.buffer.read(), Kind(kind), charset or None, options))
        text = _bounded(found)
        answer = asdict(replace(found, markdown=""))
        del answer["markdown"], answer["encoded"]
    except Unusable as error:
        answer = {"code": error.code, "message": error.message, "links": error.links}
    except IndexmillError as error:
        answer = {"code": error.code, "message": error.message}
    except (MemoryError, RecursionError):
        answer = {"code": ErrorCode.PARSE_ERROR, "message": "The page needs more memory than it may take"}
    # On its own, so that the parent need not copy it.
    sys.stdout.buffer.write(text)
    # Not as ASCII: the parent holds all of it, and an escape has up to four times the bytes.
    sys.stderr.buffer.write(b"\n" + json.dumps(answer, ensure_ascii=False).encode())


def _bounded(found: Extracted) -> bytes:
    """Return the Markdown in UTF-8. Raises PermanentError(content_too_large)."""
    text = found.markdown.encode()
    if len(text) + len(found.html or "") > MAX_TEXT_BYTES:
        raise failure(ErrorCode.CONTENT_TOO_LARGE, "The page has too much text")
    return text


def _limit(which: int, value: int) -> None:
    try:
        resource.setrlimit(which, (value, value))
    except (ValueError, OSError):  # a system that does not know this limit still has the parent's clock
        return


if __name__ == "__main__":
    main(sys.argv[1:])
