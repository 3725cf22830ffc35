"""The documentation says what the tree is."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
PAGES = sorted(
    Path(name)
    for name in subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
)


def tracked(pattern: str) -> set[str]:
    listing = subprocess.run(
        ["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(listing.stdout.split())


def test_every_package_is_in_the_tree_listing():
    tree = ARCHITECTURE.split("## The tree")[1].split("## Who")[0]
    folders = {Path(name).parts[0] for name in tracked("*/*")} - {".ci", ".github"}
    folders |= {Path(name).parts[1] for name in tracked("hetero/*/*")}
    listed = set(re.findall(r"([\w-]+)/ ", tree))
    assert folders - listed == set()
    assert listed - folders - {p.parts[1] for n in tracked("*/*/*") for p in [Path(n)]} == set()


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_between_pages_lead_somewhere(page):
    text = (ROOT / page).read_text()
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", text)
    missing = [t for t in targets if not (ROOT / page).parent.joinpath(t).exists()]
    assert missing == []


def test_every_docs_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {p.name for p in PAGES if p.parent == Path("docs")} - {"README.md"}
    assert {p for p in pages if p not in index} == set()


def test_every_error_class_is_in_the_table():
    from hetero.core import errors

    table = errors.__doc__ or ""
    rows = dict(re.findall(r"(\w+Error) +(\d +[A-Z_]+ +\d+)", table))
    for name, cls in vars(errors).items():
        if isinstance(cls, type) and issubclass(cls, errors.HeteroError):
            want = f"{cls.exit_code} {cls.grpc_status} {cls.http_status}"
            assert " ".join(rows[name].split()) == want, name


def test_make_help_lists_every_recipe():
    makefile = (ROOT / "Makefile").read_text()
    recipes = set(re.findall(r"^([a-z-]+):", makefile, re.M)) - {"help"}
    phony = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.M)[0].split()) - {"help"}
    assert recipes == phony
    assert recipes == set(re.findall(r"^([a-z-]+):.*## ", makefile, re.M)) - {"help"}
