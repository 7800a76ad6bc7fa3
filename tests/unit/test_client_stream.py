"""Server-sent events as a client of ours reads them."""

from __future__ import annotations

import pytest

from indexmill.client import StreamReader


def read(text: str) -> tuple[list[str], str, float]:
    reader = StreamReader()
    return list(reader.read(text)), reader.last_id, reader.retry_s


def test_events_with_their_id_and_pause() -> None:
    assert read("retry: 200\nid: 4\ndata: one\n\nid: 5.6\ndata: two\n\n") == (["one", "two"], "5.6", 0.2)


def test_a_comment_is_no_event_and_keeps_the_id() -> None:
    reader = StreamReader(last_id="7")
    assert list(reader.read(": nothing new\nretry: 200\n\n")) == []
    assert reader.last_id == "7"


@pytest.mark.parametrize("text", ["id: 9\ndata: half", "id: 9\ndata: half\n"])
def test_an_event_that_was_cut_off_counts_for_nothing(text: str) -> None:
    assert read("id: 8\ndata: whole\n\n" + text) == (["whole"], "8", 3.0)


def test_lines_may_end_as_they_like_and_data_may_have_several() -> None:
    assert read("data:a\r\ndata: b\r\n\r\ndata\rid\r\r")[0] == ["a\nb", ""]


def test_odd_separators_inside_the_data_are_data() -> None:
    assert read("data: a\u2028b\x85c\n\n")[0] == ["a\u2028b\x85c"]


def test_an_unreadable_pause_is_ignored() -> None:
    assert read("retry: soon\nretry: -1\nretry: \u0661\n\n")[2] == 3.0
