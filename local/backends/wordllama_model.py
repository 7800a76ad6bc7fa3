"""WordLlama: a text's vector is the mean of its tokens' rows in one table, scaled to length 1."""

from __future__ import annotations

import json
import mmap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from local.backends.model_files import tokenizer_path, weights_path
from local.backends.word_tokenizer import TokenIds, WordTokenizer

Vectors = NDArray[np.float32]

_UNKNOWN_TOKEN = 0
_TENSOR = "embedding.weight"
_NOT_YET = -1


class WordLlamaModel:
    """Tokenizer and table. The same text gives the same vector, whatever else is in the request."""

    def __init__(self, tokenizer_file: Path, weights_file: Path) -> None:
        self._tokenizer = WordTokenizer(tokenizer_file)
        self._rows = RowsByToken(weights_file)

    @classmethod
    def from_wheel(cls) -> WordLlamaModel:
        """Return the model in the installed `wordllama` wheel. Raises FileNotFoundError without it."""
        return cls(tokenizer_path(), weights_path())

    @property
    def vocabulary(self) -> int:
        """Number of tokens; ids are below this."""
        return self._rows.shape[0]

    @property
    def dimensions(self) -> int:
        """Number of dimensions of a vector."""
        return self._rows.shape[1]

    def tokenize(self, texts: Sequence[str]) -> list[TokenIds]:
        """Return each text's token ids, without special tokens."""
        return self._tokenizer.tokenize(texts)

    def embed(self, token_ids: Sequence[TokenIds]) -> Vectors:
        """Return one row of length 1 per text; a text without any token gets that of the unknown token."""
        ids = [one if len(one) else np.array([_UNKNOWN_TOKEN], np.int32) for one in token_ids]
        sums = np.empty((len(ids), self.dimensions), np.float32)
        for total, one in zip(sums, ids, strict=True):
            np.add.reduce(self._rows.of(one), axis=0, out=total)
        return normalised(sums)


class RowsByToken:
    """Rows of the table as float32, each read from the file when its token first occurs.

    Adding float16 rows is six times slower than float32 ones, and the whole table as float32 is 32 MB. Here
    the rows are kept in order of first use, in memory that is allocated as it is written to: a few
    megabytes, since texts use a small part of the vocabulary.
    """

    def __init__(self, weights_file: Path) -> None:
        self._file = weights_file
        self._start, self.shape = _table_in(weights_file)
        self._table = _lazy_zeros(self.shape)
        self._slots = np.full(self.shape[0], _NOT_YET, np.int32)
        self._used = 0

    def of(self, ids: TokenIds) -> Vectors:
        """Return the rows of these tokens, in order."""
        slots = self._slots[ids]
        if slots.min() == _NOT_YET:
            self._read(np.unique(ids[slots == _NOT_YET]))
            slots = self._slots[ids]
        return self._table[slots]

    def _read(self, new: TokenIds) -> None:
        row_bytes = 2 * self.shape[1]
        with self._file.open("rb", buffering=0) as file:
            for token in new.tolist():
                file.seek(self._start + token * row_bytes)
                self._table[self._used] = np.frombuffer(file.read(row_bytes), "<f2")
                self._slots[token] = self._used
                self._used += 1


def normalised(vectors: Vectors) -> Vectors:
    """Return the rows scaled to length 1; a row of zeros stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return scaled


def _lazy_zeros(shape: tuple[int, int]) -> Vectors:
    """Return zeros in small pages: numpy asks for huge pages, which are filled at the first access."""
    memory = mmap.mmap(-1, 4 * shape[0] * shape[1], flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.float32).reshape(shape)


def _table_in(path: Path) -> tuple[int, tuple[int, int]]:
    """Return the offset and shape of the float16 table: safetensors has a length, a JSON header, numbers."""
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        tensor = json.loads(file.read(header_bytes))[_TENSOR]
    if tensor["dtype"] != "F16":
        raise ValueError(f"{path.name}: expected float16, found {tensor['dtype']}")
    rows, columns = tensor["shape"]
    return 8 + header_bytes + tensor["data_offsets"][0], (rows, columns)
