"""Files as the content of a submit."""

from __future__ import annotations

from base64 import b64encode
from mimetypes import guess_type
from pathlib import Path


def content_of(path: Path, name: str | None, content_type: str | None) -> dict[str, str | None]:
    """Return the file as `content`; without a `content_type` it is guessed from the path. Raises OSError."""
    return {
        "name": name or path.name,
        "base64": b64encode(path.read_bytes()).decode(),
        "content_type": content_type or guess_type(path.name)[0],
    }
