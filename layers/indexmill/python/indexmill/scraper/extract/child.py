"""Child process that reads risky content: bytes on stdin, one JSON object on stdout.

It gets its limits as arguments and imposes them on itself before it looks at a byte.
"""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import asdict

from indexmill.contracts.errors import ErrorCode, IndexmillError
from indexmill.scraper.extract.content import Kind, RawContent, Unusable, Wanted, extract


def main(arguments: list[str]) -> None:
    """Read `kind charset wanted cpu-seconds memory-bytes` from the arguments and the content from stdin.

    `wanted` are names of fields of Wanted, joined by commas.
    """
    kind, charset, wanted, cpu_s, memory = arguments
    _limit(resource.RLIMIT_CPU, int(cpu_s))
    _limit(resource.RLIMIT_AS, int(memory))
    try:
        options = Wanted(**dict.fromkeys(filter(None, wanted.split(",")), True))
        found = extract(RawContent(sys.stdin.buffer.read(), Kind(kind), charset or None, options))
        answer = asdict(found)
    except Unusable as error:
        answer = {"code": error.code, "message": error.message, "links": error.links}
    except IndexmillError as error:
        answer = {"code": error.code, "message": error.message}
    except (MemoryError, RecursionError):
        answer = {"code": ErrorCode.PARSE_ERROR, "message": "The page needs more memory than it may take"}
    # Not as ASCII: the parent holds all of it, and an escape has up to four times the bytes.
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False).encode())


def _limit(which: int, value: int) -> None:
    try:
        resource.setrlimit(which, (value, value))
    except (ValueError, OSError):  # a system that does not know this limit still has the parent's clock
        return


if __name__ == "__main__":
    main(sys.argv[1:])
