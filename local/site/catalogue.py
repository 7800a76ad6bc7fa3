"""Pages of the built-in site, the expected result of each, and three searches with a known best result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PAGES_DIR = Path(__file__).parent / "pages"

ROBOTS_TXT = "User-agent: *\nDisallow: /private/\n"

REDIRECTS = {"/old-handbook": "/handbook.html"}
"""Path to Location, each a 301."""

DONE = "done"


@dataclass(frozen=True, slots=True)
class Page:
    """One URL path of the site."""

    path: str
    outcome: str
    """"done", or the error code that its job fails with."""
    title: str = ""
    language: str = "en"


PAGES: tuple[Page, ...] = (
    Page("/index.html", DONE, "Harrowmere Lending Society"),
    Page("/handbook.html", DONE, "The Keeper's Handbook"),
    Page("/news/tide-clock.html", DONE, "The tide clock runs again | Harrowmere Lending Society"),
    Page("/reference/catalogue-exchange.html", DONE, "Catalogue exchange format, version 3"),
    Page("/guides/seed-library.md", DONE, "The seed library: take, grow, return"),
    Page("/notes/winter-log.txt", DONE, "THE OBSERVATORY ON LANTERN HILL"),
    Page("/reports/annual-report.pdf", DONE, "Harrowmere Lending Society: Annual Report 2025"),
    Page("/collections/telescopes.html", DONE, "Borrow a telescope"),
    Page("/collections/bookboat.html", DONE, "The bookboat"),
    Page("/collections/sound-archive.html", DONE, "The sound archive"),
    Page("/workshops/bindery.html", DONE, "Repairing a book with a broken spine"),
    Page("/history/flood-of-1911.html", DONE, "The flood of 1911"),
    Page("/visit/opening-hours.html", DONE, "Opening hours and how to find us"),
    Page("/events/index.html", DONE, "What is on this season"),
    Page("/de/lesesaal.html", DONE, "Der Lesesaal am Hafen", "de"),
    Page("/fr/bibliobus.html", DONE, "Le bibliobus des collines", "fr"),
    Page("/old-handbook", DONE, "The Keeper's Handbook"),
    Page("/lost.html", "http_404"),
    Page("/private/ledger.html", "robots_disallowed", "Ledger of fines"),
    Page("/empty.html", "empty_content"),
    Page("/badge.png", "unsupported_content_type"),
)

QUERIES: tuple[tuple[str, str], ...] = (
    ("how do I cook wheat paste to mend a book with a broken spine", "/workshops/bindery.html"),
    ("how many meteors did the observers count on the night of the Geminids", "/notes/winter-log.txt"),
    (
        "what deposit do I pay to borrow a telescope and for how long is the loan",
        "/collections/telescopes.html",
    ),
)
"""A search and the path that must rank first."""
