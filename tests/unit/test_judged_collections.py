"""Collections of documents, queries and judgements are read in the forms in which they are published."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.perf.search_quality import Collection, collection


def write(folder: Path, **files: str) -> Collection:
    for name, text in files.items():
        (folder / name).write_text(text, "latin-1")
    return collection(folder)


DOCUMENTS = (
    ".I 1\r\n.T\r\nOn wings\r\n.A\r\nSmith, J.\r\n.W\r\nwings in\r\na stream\r\n"
    ".I 2\r\n.W\r\nheat of slabs that are long\r\n"
)
QUERIES = ".I 004\n.W\nwhich wings\n.I 008\n.W\nwhat of heat\nin slabs\n"


def test_judgements_may_number_queries_by_their_position(tmp_path: Path) -> None:
    rows = "1 1 2 \n1 2 -1\n2 2 3\n2 9 1\n"
    found = write(
        tmp_path, documents=DOCUMENTS, queries=QUERIES, rows=rows, readme="Codes 1 to 5 are judgements.\n"
    )
    assert found.documents == {
        "1": ("On wings", "wings in\na stream"),
        "2": ("", "heat of slabs that are long"),
    }
    assert found.queries == {"1": "which wings", "2": "what of heat\nin slabs"}
    assert found.relevant == {"1": {"1"}, "2": {"2"}}


def test_judgements_of_two_columns_and_ids_of_queries(tmp_path: Path) -> None:
    found = write(
        tmp_path, a=DOCUMENTS, b=QUERIES, c="     4      2\t0\t0.000000\n     8      1\t0\t0.000000\n"
    )
    assert found.queries == {"4": "which wings", "8": "what of heat\nin slabs"}
    assert found.relevant == {"4": {"2"}, "8": {"1"}}


def test_a_collection_of_trec(tmp_path: Path) -> None:
    documents = (
        "<DOC>\n<DOCNO> FT-1 </DOCNO>\n<HEADLINE>Boats</HEADLINE>\n<TEXT>\n"
        "<P>All the boats of the harbour.</P>\n</TEXT>\n</DOC>\n"
        "<DOC>\n<DOCNO>FT-2</DOCNO>\n<TEXT>Ferries, mostly, and nothing else.</TEXT>\n</DOC>\n"
    )
    topics = "<top>\n<num> Number: 301\n<title> harbour boats\n\n<desc> Description:\nAny.\n</top>\n"
    found = write(tmp_path, docs=documents, topics=topics, qrels="301 0 FT-1 1\n301 0 FT-2 0\n")
    assert found.documents["FT-1"] == ("Boats", "All the boats of the harbour.")
    assert (found.queries, found.relevant) == ({"301": "harbour boats"}, {"301": {"FT-1"}})


def test_another_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=tmp_path.name):
        write(tmp_path, readme="Nothing here.")
