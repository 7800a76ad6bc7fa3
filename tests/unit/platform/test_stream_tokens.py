"""Tokens for one job's stream: what they grant, and that nothing else is taken for one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from indexmill.platform.aws.secrets import Secret
from indexmill.platform.security.stream_tokens import StreamGrant, sign, verify
from tests.twins.clock import FrozenClock

SECRET = "a secret of thirty-two bytes, all"
CLOCK = FrozenClock()
GRANT = StreamGrant("5e2c11f4-0000-4000-8000-000000000000", "caller/ünï.1", CLOCK.now() + timedelta(hours=1))
TOKEN = sign(SECRET, GRANT)


class Short:
    def known(self, *, again: bool = False) -> tuple[str, ...]:
        return (SECRET[:31],)


def test_a_token_grants_what_was_signed() -> None:
    assert verify(Secret(SECRET), TOKEN, CLOCK.now()) == GRANT


def test_a_token_needs_no_escaping_in_a_url() -> None:
    assert set(TOKEN) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


def test_a_token_is_good_until_its_second_and_not_in_it() -> None:
    assert verify(Secret(SECRET), TOKEN, GRANT.expires_at - timedelta(seconds=1)) == GRANT
    assert verify(Secret(SECRET), TOKEN, GRANT.expires_at) is None


@pytest.mark.shows("S27")
def test_no_changed_character_goes_unnoticed() -> None:
    for at, letter in enumerate(TOKEN):
        changed = TOKEN[:at] + ("A" if letter != "A" else "B") + TOKEN[at + 1 :]
        assert verify(Secret(SECRET), changed, CLOCK.now()) is None, at
        assert verify(Secret(SECRET), TOKEN[:at] + TOKEN[at + 1 :], CLOCK.now()) is None, at


@pytest.mark.parametrize(
    "token", ["", ".", "a.b", "ä.ö", TOKEN + "=", TOKEN + ".", f" {TOKEN}", "A" * 2_000, "\0.\0"]
)
def test_what_is_no_token_grants_nothing(token: str) -> None:
    assert verify(Secret(SECRET), token, CLOCK.now()) is None


def test_another_secret_grants_nothing() -> None:
    assert verify(Secret("another secret of as many bytes."), TOKEN, CLOCK.now()) is None


@pytest.mark.shows("S27")
def test_a_short_secret_is_refused_on_both_sides() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        sign(SECRET[:31], GRANT)
    with pytest.raises(ValueError, match="32 bytes"):
        verify(Short(), TOKEN, CLOCK.now())


@pytest.mark.shows("S18", "S27")
def test_a_token_of_the_key_before_is_good_and_one_of_the_next_key_is_read_again_for() -> None:
    assert verify(Secret("the next secret of thirty-two bytes", previous=SECRET), TOKEN, CLOCK.now()) == GRANT
    assert verify(Secret("the next secret of thirty-two bytes"), TOKEN, CLOCK.now()) is None

    class Rotated:
        def known(self, *, again: bool = False) -> tuple[str, ...]:
            return (SECRET, "old") if again else ("an old secret of thirty-two bytes.",)

    assert verify(Rotated(), TOKEN, CLOCK.now()) == GRANT
