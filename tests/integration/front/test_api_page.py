"""The page at /docs: only where a front was given a document, and its texts are no HTML."""

from __future__ import annotations

from pathlib import Path

import yaml

from local.front.server import FrontOptions
from tests.integration.front.harness import ServeFront, route

HOSTILE = "<script>alert(1)</script>"
DOCUMENT = {
    "info": {"title": HOSTILE, "version": "1"},
    "paths": {
        '/a"b': {
            "get": {
                "summary": HOSTILE,
                "description": HOSTILE,
                "parameters": [
                    {"name": HOSTILE, "in": "query", "schema": {"type": "string", "pattern": HOSTILE}}
                ],
                "responses": {
                    "200": {
                        "description": HOSTILE,
                        "content": {"text/html": {"schema": {"enum": [HOSTILE]}, "example": HOSTILE}},
                    }
                },
            }
        }
    },
    "components": {"schemas": {}},
}


async def test_without_a_document_there_is_no_page(serve: ServeFront) -> None:
    served = await serve(route("GET", "/a"))
    answer = await served.client.get("/docs")
    assert (answer.status_code, answer.json()) == (403, {"message": "Missing Authentication Token"})


async def test_texts_of_the_document_are_escaped(serve: ServeFront, tmp_path: Path) -> None:
    file = tmp_path / "openapi.yaml"
    file.write_text(yaml.safe_dump(DOCUMENT), encoding="utf-8")
    served = await serve(route("GET", "/a"), options=FrontOptions(api_document=file))
    answer = await served.client.get("/docs")
    assert answer.status_code == 200
    assert answer.text.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 10
    assert "<script" not in answer.text
    assert 'id="GET-/a"b"' not in answer.text
    post = await served.client.post("/docs")
    assert post.status_code == 403
