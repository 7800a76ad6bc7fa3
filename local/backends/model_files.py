"""Location of the embedding model's files: inside the `wordllama` wheel, found without importing it.

The package's own loader looks in another folder and then asks a model hub, so its files are read directly.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

MODEL_ID = "wordllama-256"
DIMENSIONS = 256


def tokenizer_path() -> Path:
    """Return the path of the model's tokenizer.json; the chunker counts tokens with the same file."""
    return _package() / "tokenizers" / "l2_supercat_tokenizer_config.json"


def weights_path() -> Path:
    """Return the path of the token table: float16, one row of 256 numbers per token, as safetensors."""
    return _package() / "weights" / "l2_supercat_256.safetensors"


def _package() -> Path:
    found = importlib.util.find_spec("wordllama")
    if found is None or found.origin is None:
        raise FileNotFoundError("the wordllama package is not installed")
    return Path(found.origin).resolve().parent
