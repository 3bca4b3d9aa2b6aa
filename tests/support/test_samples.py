"""tests/data contains what its README says, and is unpacked completely."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

import pytest
import samples
from conftest import EITHER_ENGINE, ROOT

pytestmark = EITHER_ENGINE


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("name", samples.SHA256)
def test_a_file_is_the_one_that_the_page_lists(name: str) -> None:
    published = samples.SHA256[name]
    assert sha256((samples.unpacked() / name).read_bytes()) == published
    rows = (samples.DATA / "README.md").read_text(encoding="utf-8").splitlines()
    (row,) = [row for row in rows if row.startswith(f"| `{name}` |")]
    assert f"`{published}`" in row


def test_hashes_of_encodings_are_those_of_tiktoken() -> None:
    if importlib.util.find_spec("tiktoken_ext") is None:
        pytest.skip("tiktoken is not installed: pip install 'tiktoken'")
    spec = importlib.util.find_spec("tiktoken_ext.openai_public")
    assert spec is not None and spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    for name in ("r50k_base", "cl100k_base", "o200k_base"):
        assert samples.SHA256[f"{name}.tiktoken"] in source
        assert f"{samples.PUBLISHED_AT}{name}.tiktoken" in source


@pytest.mark.parametrize("damaged", [b"", b"IQ== 0\n", None])
def test_what_is_damaged_is_unpacked_again(
    damaged: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "ROOT", tmp_path)
    unpack = samples.unpacked.__wrapped__
    folder = unpack()
    place = folder / "r50k_base.tiktoken"
    assert folder.is_relative_to(tmp_path)
    place.unlink() if damaged is None else place.write_bytes(damaged)
    assert unpack() == folder
    assert sha256(place.read_bytes()) == samples.SHA256[place.name]
    assert not [path for path in folder.iterdir() if path.suffix.lstrip(".").isdigit()]


def test_the_archives_take_three_megabytes() -> None:
    assert sum(path.stat().st_size for path in samples.DATA.iterdir()) < 3.3 * 10**6
    assert (ROOT / "tests" / "data") == samples.DATA
