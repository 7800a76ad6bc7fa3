"""The facts that Google published with its robots.txt parser, as a table; the lines of one agent.

Each case has a robots.txt, the agent, the paths it may fetch and those it may not. One fact is not kept, see
`test_an_escaped_character_is_the_character`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pytest

from indexmill.platform.security.urls import escaped
from indexmill.scraper.robots import Rules, rules_for


@dataclass(frozen=True)
class Case:
    """One robots.txt and what follows from it."""

    text: str | bytes
    may: str = ""
    """Paths, separated by blanks."""
    may_not: str = ""
    agent: str = "FooBot"


def group(*rules: str, agent: str = "FooBot") -> str:
    """Return a group; "+" in front of a pattern allows it, "-" disallows it."""
    names = {"+": "allow", "-": "disallow"}
    return "\n".join([f"user-agent: {agent}", *(f"{names[rule[0]]}: {rule[1:]}" for rule in rules)]) + "\n"


GROUPS: Final = (
    "allow: /foo/bar/\n\n"
    + group("-/", "+/x/")
    + group("-/", "+/y/", agent="BarBot")
    + "\n\nallow: /w/\nuser-agent: BazBot\n\n"
    + group("+/z/", "-/")
)
THREE: Final = group("+/") + group("-/", agent="BarBot") + group("-/", agent="BazBot")
SPACED: Final = group("-/", agent="*") + group("+/x/", "-/", agent="Foo Bar")
DOT_PHP: Final = "/filename.php /folder/filename.php"
UNDER_FISH: Final = (
    "/fish /fish.html /fish/salmon.html /fishheads /fishheads/yummy.html /fish.html?id=anything"
)
NOT_FISH: Final = "/bar /Fish.asp /catfish /?id=fish"
LONG_A, LONG_B = (f"/x/{char * 16_652}" for char in "ab")
CUT: Final = group(f"-{LONG_A}/qux")
CUT_ALLOWED: Final = group("-/", f"+{LONG_A[:-1]}/qux", f"+{LONG_B}/qux")

CASES: Final = {
    # -- no rules, no agent, no path
    "nothing": Case("", may="/"),
    "no agent": Case(group("-/"), may="/", agent=""),
    "no path": Case(group("-/"), may_not="/"),
    "nothing at all": Case("", may="/", agent=""),
    # -- lines
    "colons": Case(group("-/"), may_not="/x/y"),
    "unknown names": Case("foo: FooBot\nbar: /\n", may="/x/y"),
    "missing colons": Case("user-agent FooBot\ndisallow /\n", may_not="/x/y"),
    "groups, the first agent": Case(GROUPS, may="/x/b /z/d", may_not="/y/c /foo/bar/"),
    "groups, the second agent": Case(GROUPS, may="/y/c /w/a", may_not="/z/d /foo/bar/", agent="BarBot"),
    "groups, an agent beside another": Case(GROUPS, may="/z/d", may_not="/foo/bar/", agent="BazBot"),
    "upper-case names": Case("USER-AGENT: FooBot\nALLOW: /x/\nDISALLOW: /\n", may="/x/y", may_not="/a/b"),
    "lower-case names": Case(group("+/x/", "-/"), may="/x/y", may_not="/a/b"),
    "mixed names": Case("uSeR-aGeNt: FooBot\nAlLoW: /x/\ndIsAlLoW: /\n", may="/x/y", may_not="/a/b"),
    # -- agents
    **{
        f"agent {written!r} is {asked!r}": Case(
            group("+/x/", "-/", agent=written), may="/x/y", may_not="/a/b", agent=asked
        )
        for written in ("FOO BAR", "foo bar", "FoO bAr")
        for asked in ("Foo", "foo")
    },
    "an agent ends at a blank": Case(SPACED, may="/x/y", agent="Foo"),
    "and has none itself": Case(SPACED, may_not="/x/y", agent="Foo Bar"),
    "no groups": Case("", may="/x/y"),
    "a group before everyone's": Case(group("+/", agent="*") + group("-/"), may_not="/x/y"),
    "everyone's group": Case(group("+/", agent="*") + group("-/"), may="/x/y", agent="BarBot"),
    "groups of others": Case(THREE, may="/x/y", agent="QuxBot"),
    # -- which rule decides
    "paths have cases": Case(group("-/x/"), may_not="/x/y"),
    "paths have other cases": Case(group("-/X/"), may="/x/y"),
    "the longer disallows": Case(group("-/x/page.html", "+/x/"), may_not="/x/page.html"),
    "the longer allows": Case(group("+/x/page.html", "-/x/"), may="/x/page.html", may_not="/x/"),
    "empty rules": Case("user-agent: FooBot\ndisallow: \nallow: \n", may="/x/page.html"),
    "equal rules for all": Case(group("-/", "+/"), may="/x/page.html"),
    "with and without a slash": Case(group("-/x", "+/x/"), may="/x/", may_not="/x"),
    "equal rules": Case(group("-/x/page.html", "+/x/page.html"), may="/x/page.html"),
    "a wildcard is longer": Case(group("+/page", "-/*.html"), may="/page", may_not="/page.html"),
    "a wildcard is shorter": Case(group("+/x/page.", "-/*.html"), may="/x/page.html", may_not="/x/y.html"),
    "the own group alone": Case(group("-/x/", agent="*") + group("-/y/"), may="/x/page", may_not="/y/page"),
    # -- escapes; a path is escaped before it is compared
    "a query as it is": Case(
        group("-/", "+/foo/bar?qux=taz&baz=http://foo.bar?tar&par"),
        may="/foo/bar?qux=taz&baz=http://foo.bar?tar&par",
    ),
    "three bytes": Case(group("-/", "+/foo/bar/ツ"), may="/foo/bar/%E3%83%84", may_not="/foo/bar/ツ"),
    "three bytes, escaped": Case(
        group("-/", "+/foo/bar/%E3%83%84"), may="/foo/bar/%E3%83%84", may_not="/foo/bar/ツ"
    ),
    # -- special characters
    "a star in between": Case(
        group("-/foo/bar/quz", "+/foo/*/qux"), may="/foo/quz /foo//quz /foo/bax/quz", may_not="/foo/bar/quz"
    ),
    "an end": Case(
        group("-/foo/bar$", "+/foo/bar/qux"),
        may="/foo/bar/qux /foo/bar/ /foo/bar/baz",
        may_not="/foo/bar",
    ),
    "comments": Case(
        "User-agent: FooBot\n# Disallow: /\nDisallow: /foo/quz#qux\nAllow: /\n",
        may="/foo/bar",
        may_not="/foo/quz",
    ),
    # -- what Google adds
    "an index is its folder": Case(
        group("+/allowed-slash/index.html", "-/", agent="*"),
        may="/allowed-slash/ /allowed-slash/index.html",
        may_not="/allowed-slash/index.htm /anyother-url",
        agent="foobot",
    ),
    "a long line is cut": Case(CUT, may="/fux", may_not=f"{LONG_A}/fux"),
    "long lines are cut": Case(CUT_ALLOWED, may=f"{LONG_A[:-1]}/qux {LONG_B}/fux", may_not="/"),
    # -- the documentation
    "/fish": Case(group("-/", "+/fish"), may=UNDER_FISH, may_not=NOT_FISH),
    "/fish*": Case(group("-/", "+/fish*"), may=UNDER_FISH, may_not=NOT_FISH),
    "/fish/": Case(
        group("-/", "+/fish/"),
        may="/fish/ /fish/salmon /fish/?salmon /fish/salmon.html /fish/?id=anything",
        may_not="/bar /fish /fish.html /Fish/Salmon.html",
    ),
    "/*.php": Case(
        group("-/", "+/*.php"),
        may=f"{DOT_PHP} /folder/filename.php?parameters //folder/any.php.file.html /filename.php/ "
        "/index?f=filename.php/",
        may_not="/bar /php/ /index?php /windows.PHP",
    ),
    "/*.php$": Case(
        group("-/", "+/*.php$"),
        may=DOT_PHP,
        may_not="/bar /filename.php?parameters /filename.php/ /filename.php5 /php/ /filename?php /aaaphpaaa "
        "//windows.PHP",
    ),
    "/fish*.php": Case(
        group("-/", "+/fish*.php"),
        may="/fish.php /fishheads/catfish.php?parameters",
        may_not="/bar /Fish.PHP",
    ),
    "precedence, a letter": Case(group("+/p", "-/"), may="/page"),
    "precedence, a folder": Case(group("+/folder", "-/folder"), may="/folder/page"),
    "precedence, a type": Case(group("+/page", "-/*.htm"), may_not="/page.htm"),
    "precedence, the start page": Case(group("+/$", "-/"), may="/", may_not="/page.html"),
    # -- bytes
    **{
        f"lines end with {end!r}": Case(
            end.join(
                ("User-Agent: foo", "Allow: /some/path", "User-Agent: bar", "", "", f"Disallow: /{last}")
            ),
            may_not="/some/path",
            agent="bar",
        )
        for end, last in (("\n", "\n"), ("\r\n", "\r\n"), ("\r", "\r"), ("\n", ""))
    },
    "lines end with all of them": Case(
        "User-Agent: foo\nAllow: /some/path\r\nUser-Agent: bar\n\r\n\nDisallow: /", may_not="/x", agent="bar"
    ),
    **{
        f"a byte order mark of {len(mark)} bytes": Case(mark + group("-/").encode(), may_not="/x")
        for mark in (b"\xef\xbb\xbf", b"\xef\xbb", b"\xef")
    },
    "a broken byte order mark": Case(b"\xef\x11\xbf" + group("-/").encode(), may="/x"),
    "a byte order mark in between": Case(
        b"User-Agent: FooBot\n\xef\xbb\xbfDisallow: /AnyValue\n", may="/AnyValue"
    ),
    "a site map anywhere": Case("Sitemap: http://foo.bar/s.xml\n" + group("-/a"), may="/b", may_not="/a"),
    "a site map in a group": Case(
        "User-Agent: FooBot\nSitemap: http://foo.bar/s.xml\nUser-Agent: BarBot\nDisallow: /a",
        may="/b",
        may_not="/a",
    ),
}
FACTS: Final = [
    pytest.param(case, path, allowed, id=f"{name}: {path[:60]}")
    for name, case in CASES.items()
    for allowed, paths in ((True, case.may), (False, case.may_not))
    for path in paths.split()
]


def allowed(case: Case, path: str) -> bool:
    body = case.text if isinstance(case.text, bytes) else case.text.encode()
    return Rules(rules_for(case.agent, body)).refusing(path) is None


@pytest.mark.parametrize(("case", "path", "expected"), FACTS)
def test_the_published_facts_hold(case: Case, path: str, expected: bool) -> None:
    assert allowed(case, path) is expected


def test_the_table_has_the_published_facts() -> None:
    assert len(FACTS) >= 138


@pytest.mark.parametrize(
    ("written", "compared"),
    [
        ("http://www.example.com", "http://www.example.com"),
        ("/a/b/c", "/a/b/c"),
        ("á", "%C3%A1"),
        ("%aa", "%AA"),
    ],
)
def test_patterns_are_escaped(written: str, compared: str) -> None:
    assert escaped(written) == compared


def test_an_escaped_character_is_the_character() -> None:
    """Google compares the characters as they are written; RFC 9309 (2.2.2) wants both forms to be one."""
    rules = Rules(rules_for("FooBot", group("-/", "+/foo/bar/%62%61%7A").encode()))
    assert rules.refusing("/foo/bar/baz") is None
