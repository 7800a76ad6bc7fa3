"""No file of the repository has what looks like a real secret; test_layers.py looks into what is deployed."""

from __future__ import annotations

import pytest

from tests.support.repository import inside, text_files
from tests.support.secret_patterns import PATTERNS, secrets

# Put together from parts, so that this file is clean itself.
EXAMPLES = [
    ("AWS access key", "AK" + "IA" + "QWERTYUIOPASDF12"),
    ("AWS secret key", "aws_secret_access_key = " + "aB3x" * 10),
    ("AWS secret key", '"SecretAccess' + 'Key": "' + "aB3x" * 9 + "aB3/" + '"'),
    ("private key", "-----BEGIN RSA PRIV" + "ATE KEY-----"),
    ("private key", "-----BEGIN PGP PRIV" + "ATE KEY BLOCK-----"),
    ("GitHub token", "gh" + "p_" + "a1B2" * 9),
    ("GitLab token", "glp" + "at-" + "a1B2" * 5),
    ("Slack token", "xox" + "b-" + "123456789012-abcdefghij"),
    ("Slack address", "https://hooks.slack.com/serv" + "ices/T0/B0/" + "a1B2" * 6),
    ("key of an API", "sk" + "-" + "a1B2" * 8),
    ("key of an API", "h" + "f_" + "aBcD" * 8),
    ("key of a payment", "sk" + "_live_" + "a1B2" * 6),
    ("key of a mailer", "S" + "G." + "a1B2" * 5 + "ab." + "a1B2" * 10 + "abc"),
    ("token of a registry", "np" + "m_" + "a1B2" * 9),
    ("Google key", "AI" + "za" + "a1B2c" * 7),
    ("JSON web token", "ey" + "JhbGciOiJIUzI1NiJ9." + "ey" + "JzdWIiOiIxMjM0NTY3ODkwIn0." + "a1B2" * 6),
    ("password in a URL", "postgresql://owner:" + "S3cr3t!9x" + "@db.acme.org/x"),
    ("password of a connection", "host=db.acme.org user=owner pass" + "word=" + "a1B2" * 5),
    ("named secret", "aws_session_tok" + "en = IQoJb3JpZ2luX2Vj" + "a1B2" * 9),
    ("named secret", "wss://browser.acme.org?tok" + "en=" + "a1b2" * 9),
    ("named secret", "EmbeddingApi" + "Key=" + "a1B2" * 10),
]


@pytest.mark.shows("S18")
def test_no_file_of_the_repository_has_a_secret() -> None:
    assert secrets((inside(path), text) for path, text in text_files().items()) == []


@pytest.mark.parametrize(("kind", "example"), EXAMPLES)
def test_a_secret_of_each_kind_is_found(kind: str, example: str) -> None:
    assert f"settings.py:2: {kind}" in secrets([("settings.py", f"first line\nvalue = '{example}'\n")])


def test_each_kind_has_an_example() -> None:
    assert {kind for kind, _ in EXAMPLES} == PATTERNS.keys()


@pytest.mark.parametrize(
    "harmless",
    [
        "EmbeddingApiKeySecretArn: arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-AbC123",
        "token = signed_with_the_second_key_of_32_bytes(key)",
        "password=REPLACE-ME",
        "https://example.com:443/page@2",
    ],
)
def test_what_only_resembles_a_secret_is_not(harmless: str) -> None:
    assert secrets([("a.py", harmless)]) == []
