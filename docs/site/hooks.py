"""What `mkdocs build` does besides: pages from the repository's own files, and a look at what was built.

README.md, CONTRIBUTING.md, CHANGELOG.md and recipes/README.md are pages of the site as they stand, with their
links adapted. Recipes are served as files. The built site must not fetch anything.
"""

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "recipes/README.md": "experiments.md",
}
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)")
FETCHES = re.compile(
    r"""<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|@import\s+["']?((?:https?:)?//[^"'\s;]+)|url\(["']?((?:https?:)?//[^"')]+)""",
    re.IGNORECASE,
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the repository's own pages and the recipes."""
    root = Path(config.config_file_path).parent
    for source, page in PAGES.items():
        text = (root / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=turned(text, source)))
    for recipe in sorted((root / "recipes").glob("*.toml")):
        files.append(File.generated(config, f"recipes/{recipe.name}", abs_src_path=str(recipe)))
    return files


def turned(text: str, source: str) -> str:
    """Return a page of the repository with its links as the site has them."""
    folder = PurePosixPath(source).parent

    def turn(link: re.Match[str]) -> str:
        target = normpath(str(folder / link[1]))
        return PAGES.get(target) or (relpath(target, "docs") if target.startswith("docs/") else target)

    return LINK.sub(turn, text)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that would fetch fonts, scripts or styles from elsewhere."""
    for path in Path(config.site_dir).rglob("*"):
        if path.suffix not in {".html", ".css"}:
            continue
        if link := FETCHES.search(path.read_text(encoding="utf-8")):
            address = next(filter(None, link.groups()))
            raise PluginError(f"{path}: fetches {address}; the site must work without a network")
