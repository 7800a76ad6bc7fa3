"""Pages to index, each with a sentence that is unique to it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Size = Literal["small", "large"]
_PARAGRAPHS: Final[dict[str, int]] = {"small": 3, "large": 420}
_PER_SECTION: Final = 12
_WORDS: Final = """
    amber anvil apricot badger barley basket beacon birch bishop bramble candle canyon cedar chapel cinder
    clover cobalt copper coral cradle crane dagger diamond dolphin eagle ember falcon feather fiddle flint
    forest fountain garnet ginger glacier hammer harbor hazel helmet heron honey iron island ivory jasper
    juniper kettle lagoon lantern lemon linen lizard magnet maple marble meadow mirror nectar needle oak
    olive orchard otter oyster pebble pepper pigeon pine planet plum quartz quill raven ribbon river saddle
    salmon scarlet shadow silver sparrow spruce swallow tailor temple thistle thunder tiger timber tulip
    turtle velvet violet walnut whistle willow winter wolf
"""
_TEXT: Final = (
    "Ferries leave the quay when the tide allows it, and the harbour master writes down who was on board. "
    "Paragraph {number} of {token} says which of the lamps along the mole were lit that night, and by whom."
)


@dataclass(frozen=True, slots=True)
class Page:
    """A written page."""

    token: str
    path: str
    """Path on the site, with its slash."""
    sentence: str


def write_page(root: Path, token: str, size: Size = "small") -> Page:
    """Write the page of `token` below the site's folder; the text of a large one has more than 60 kB."""
    # Random words from the token: pages differ in meaning too, and search finds each among many.
    first, second, third, fourth, fifth = random.Random(token).sample(_WORDS.split(), 5)  # noqa: S311
    sentence = f"The {first} {second} of {token} trades a {third} for the {fourth} {fifth}."
    folder = root / "pages"
    folder.mkdir(parents=True, exist_ok=True)
    body = [f"<h1>The book of {token}</h1>", f"<p>{sentence}</p>"]
    for number in range(_PARAGRAPHS[size]):
        if number % _PER_SECTION == 0:
            body.append(f"<h2>Night {number // _PER_SECTION + 1}</h2>")
        body.append(f"<p>{_TEXT.format(number=number + 1, token=token)}</p>")
    html = (
        f"<!doctype html><html lang=en><head><title>Book {token}</title></head><body>{''.join(body)}</body>"
    )
    (folder / f"{token}.html").write_text(html, encoding="utf-8")
    return Page(token, f"/pages/{token}.html", sentence)
