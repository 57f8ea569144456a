"""The frame of every page: one style in light and dark, one header, no link and no script (extra: report)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rankhouse.core.errors import needs
from rankhouse.io.outputs import writing
from rankhouse.page.tables import BETTER, WORSE, Table

if TYPE_CHECKING:
    from jinja2 import Environment

_FRAME = Path(__file__).parent / "templates"


def write_page(template: Path, content: Mapping[str, object], path: Path | str) -> None:
    """Fill a template that extends ``base.html.j2``, and write a page that stands alone.

    In a template, ``{{ table | html }}`` shows a :class:`Table` and ``{{ chart | svg }}`` what
    :func:`rankhouse.page.charts.inline` drew; all else is escaped.

    Args:
        content: Name -> what the template calls by it; ``title`` is the page's.

    Raises:
        MissingExtra: jinja2 is not installed.
        OutputFailed: The file cannot be written.
    """
    environment = environment_of(template.parent)
    text = environment.get_template(template.name).render(content)
    with writing(Path(path)) as out:
        out.write(text)


def environment_of(*folders: Path) -> Environment:
    """Return what fills templates: everything is escaped, a name that is not there is an error.

    Raises:
        MissingExtra: jinja2 is not installed.
    """
    with needs("report", "writing a report page"):
        from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - optional
        from markupsafe import Markup  # noqa: PLC0415 - comes with jinja2
    environment = Environment(
        loader=FileSystemLoader([*folders, _FRAME]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def html(table: Table) -> Markup:
        return Markup(f'<div class="scroll" tabindex="0">{table.to_html(styled=False)}</div>')  # noqa: S704 - cells are escaped

    def svg(chart: str) -> Markup:
        return Markup(chart)  # noqa: S704 - the plotting library has escaped the names that it wrote

    environment.filters |= {"html": html, "svg": svg}
    environment.globals |= {"better": BETTER, "worse": WORSE}
    return environment
