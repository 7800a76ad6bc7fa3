"""The types of the TypeScript example are those of stack/openapi.yaml, and its lock file names no host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import typescript

MISSING = typescript.missing()


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
def test_the_types_are_fresh(tmp_path: Path) -> None:
    fresh = tmp_path / "api.ts"
    typescript.tool("openapi-typescript", "../../stack/openapi.yaml", "--output", str(fresh))
    kept = (typescript.EXAMPLE / "src" / "api.ts").read_text(encoding="utf-8")
    assert kept == fresh.read_text(encoding="utf-8"), "stale: run `make generate`"


def test_every_package_is_pinned_by_a_digest_and_comes_from_the_users_own_registry() -> None:
    lock = json.loads((typescript.EXAMPLE / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: each for name, each in lock["packages"].items() if name}
    assert len(packages) > 10
    assert [name for name, each in packages.items() if "resolved" in each] == []
    assert [name for name, each in packages.items() if not each["integrity"].startswith("sha512-")] == []
    setting = "omit-lockfile-registry-resolved=true"
    assert setting in (typescript.EXAMPLE / ".npmrc").read_text(encoding="utf-8").splitlines()
