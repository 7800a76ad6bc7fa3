"""The charset texts are what the measurements made with them assume."""

from __future__ import annotations

from collections import Counter, defaultdict

from tests.support.charset_texts import CharsetText, held_out_texts, tuning_texts


def _by_pair(texts: list[CharsetText]) -> dict[tuple[str, str], list[CharsetText]]:
    pairs: dict[tuple[str, str], list[CharsetText]] = defaultdict(list)
    for text in texts:
        pairs[text.encoding, text.language].append(text)
    return pairs


def test_each_text_decodes_to_itself_and_not_as_ascii() -> None:
    for text in [*tuning_texts(), *held_out_texts()]:
        assert text.encoded.decode(text.encoding) == text.text
        assert not text.text.isascii(), text.text


def test_each_pair_has_eight_different_texts_of_three_lengths() -> None:
    pairs = _by_pair([*tuning_texts(), *held_out_texts()])
    assert len(pairs) >= 26
    for pair, texts in pairs.items():
        sizes = [len(text.text) for text in texts]
        assert len({text.text for text in texts}) == 8, pair
        assert sum(80 <= size <= 200 for size in sizes) == 3, pair
        assert sum(200 < size <= 600 for size in sizes) == 3, pair
        assert sum(600 < size <= 1500 for size in sizes) == 2, pair


def test_half_of_each_pair_is_held_out_and_half_of_either_half_states_its_language() -> None:
    for held_out, texts in ((False, tuning_texts()), (True, held_out_texts())):
        assert {text.held_out for text in texts} == {held_out}
        for pair, half in _by_pair(texts).items():
            assert Counter(text.lang for text in half) == {pair[1]: 2, None: 2}, pair
