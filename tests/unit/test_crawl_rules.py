"""Rules of crawls: which URLs belong to one."""

from __future__ import annotations

import time

import pytest
from pydantic import ValidationError

from indexmill.contracts.crawl import CrawlRequest, CrawlRules, host_of
from indexmill.contracts.job import SubmitRequest

HOSTS = {"example.com"}
SITE = "https://example.com"


@pytest.mark.shows("P038")
@pytest.mark.parametrize(
    ("patterns", "path", "fits"),
    [
        (["/docs/*"], "/docs/a", True),
        (["/docs/*"], "/docs/", True),
        (["/docs/*"], "/docs", False),
        (["/docs/*"], "/blog/docs/a", False),
        (["*/docs/*"], "/blog/docs/a", True),
        (["/docs"], "/docs", True),
        (["/docs"], "/docs/a", False),
        (["https://example.com/a*"], "/ab", True),
        (["http://example.com/a*"], "/ab", False),
        (["/a*b*c"], "/a-b-b-c", True),
        (["/a*b*c"], "/acb", False),
        (["/a*a"], "/a", False),
        (["/a*a"], "/aa", True),
        (["/*.html"], "/x.html", True),
        (["/*.html"], "/x.html?y=1", False),
        (["/x?y=*"], "/x?y=1", True),
        (["/x?y=*"], "/xzy=1", False),
        (["/[a-z]*"], "/b", False),
        (["*"], "/", True),
        (["/x", "/y"], "/y", True),
    ],
)
def test_a_pattern_has_a_star_for_any_characters(patterns: list[str], path: str, fits: bool) -> None:
    assert CrawlRules(include=patterns).admit(SITE + path, HOSTS) is fits
    assert CrawlRules(exclude=patterns).admit(SITE + path, HOSTS) is not fits


def test_exclude_wins_over_include() -> None:
    rules = CrawlRules(include=["/docs/*"], exclude=["/docs/old/*"])
    assert rules.admit(f"{SITE}/docs/new/a", HOSTS)
    assert not rules.admit(f"{SITE}/docs/old/a", HOSTS)


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("http://example.com/a", True),
        ("https://example.com:8443/a", False),
        ("https://www.example.com/a", False),
        ("https://example.com.evil.example/a", False),
        ("https://evil.example/?https://example.com/a", False),
    ],
)
def test_a_host_is_compared_with_its_port(url: str, own: bool) -> None:
    assert CrawlRules().admit(url, {host_of(f"{SITE}/")}) is own
    assert CrawlRules(same_host=False).admit(url, HOSTS)


@pytest.mark.parametrize("path", ["/a.png", "/a.PNG", "/a.tar.gz", "/style.css?v=2", "/a.mp4"])
def test_files_without_text_are_left_out_by_their_names(path: str) -> None:
    assert not CrawlRules().admit(SITE + path, HOSTS)
    assert CrawlRules().admit(f"{SITE}/a.pdf", HOSTS)
    assert CrawlRules().admit(f"{SITE}/png", HOSTS)


def test_no_pattern_takes_long() -> None:
    rules = CrawlRules(include=["/" + "*a" * 98 + "*b"] * 20)
    url = f"{SITE}/" + "a" * 2_000
    began = time.process_time()
    assert not rules.admit(url, HOSTS)
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize(
    "rules",
    [
        {"depth": 11},
        {"depth": -1},
        {"max_pages": 0},
        {"max_pages": 1_001},
        {"include": ["x"] * 21},
        {"exclude": ["x" * 201]},
        {"exclude": [""]},
        {"include": ["a\x00b"]},
        {"same_host": "yes"},
        {"unknown": 1},
    ],
)
def test_rules_are_bounded(rules: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        CrawlRequest.model_validate(rules)


@pytest.mark.parametrize(
    "request_",
    [
        {"urls": [f"{SITE}/"], "kind": "crawl"},
        {"content": {"name": "a", "text": "b"}, "kind": "sitemap"},
        {"url": f"{SITE}/", "crawl": {"depth": 1}},
        {"url": f"{SITE}/", "kind": "page", "crawl": {}},
        {"url": f"{SITE}/", "kind": "site"},
    ],
)
def test_a_crawl_has_one_url_and_only_it_has_rules(request_: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SubmitRequest.model_validate(request_)
