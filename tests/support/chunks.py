"""Texts to split, tokenizers to split with, and what must hold for any result."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path

from indexmill.chunking.adapters.model_tokenizer import ModelTokenizer
from indexmill.chunking.ports import Tokenizer
from indexmill.contracts.content import Chunk, ChunkSettings
from local.backends.model_files import tokenizer_path

MARKDOWN = """# Handbook

The handbook says how things are done here. It is short. Read it once.

## Travel

Book trains first. Flights need approval by a lead! Keep every receipt?

- Hotels up to 120 a night.
- Meals up to 40 a day.
- Nothing else without asking.

### Rail

Seats are reserved early. Late ones cost more.

## Data

| Name | Kind |
|---|---|
| alpha | table |
| beta | view |

```python
def load(path):

    return open(path).read()
```

Backups run at night.
"""


@cache
def model_tokenizer() -> ModelTokenizer:
    """The local model's own tokenizer, loaded once per test run."""
    tokenizer = ModelTokenizer(tokenizer_path())
    tokenizer.load()
    return tokenizer


def whole_text_tokenizer(folder: Path) -> ModelTokenizer:
    """The same vocabulary behind a pre-tokenizer that the adapter knows nothing about."""
    config = json.loads(tokenizer_path().read_text(encoding="utf-8"))
    config["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"String": "\u2581"},
        "behavior": "MergedWithNext",
        "invert": False,
    }
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    return ModelTokenizer(file)


def assert_sound(chunks: list[Chunk], text: str, settings: ChunkSettings, tokenizer: Tokenizer) -> None:
    """Check what is promised of every split."""
    covered = bytearray(len(text))
    overlap = min(settings.overlap_tokens, settings.max_tokens // 2)
    for ordinal, chunk in enumerate(chunks):
        assert chunk.ordinal == ordinal
        assert chunk.text == text[chunk.start : chunk.end]
        assert chunk.text == chunk.text.strip() != ""
        assert chunk.tokens == tokenizer.count(chunk.embedded_text) <= settings.max_tokens
        covered[chunk.start : chunk.end] = b"\1" * (chunk.end - chunk.start)
    assert all(seen or sign.isspace() for seen, sign in zip(covered, text, strict=True))
    for one, other in pairwise(chunks):
        assert one.start < other.start
        assert one.end < other.end
        assert tokenizer.count(text[other.start : one.end]) <= overlap + 2
