"""A page: one HTML file that loads nothing from elsewhere and escapes every text."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from itertime.io import MAX_BYTES, read_text

from .chart import Chart
from .looks import palette_css

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["chart_script", "chart_style", "packed", "render"]

_TEMPLATES = Path(__file__).parents[1] / "templates"
_CHART_SCRIPTS, _CHART_STYLE = ("scales.js", "charts.js", "chart_pointer.js"), "charts.css"
_SCRIPTS = ("page.js", *_CHART_SCRIPTS)
_LEVEL = 1  # of gzip


def render(
    template: str,
    charts: Mapping[str, Chart],
    scripts: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
    **context: Any,
) -> str:
    """The page of a template, as HTML.

    `scripts`: files of the folder of templates, beside those that every page has. `data`: what they read,
    beside the charts. All text is escaped or packed, and the content security policy allows only the page's
    own scripts, by their hashes. So a text from a file cannot become markup or code.
    """
    script = _inline_script(_joined((*_SCRIPTS, *scripts)))
    return _template(template).render(
        charts=charts,
        data=packed({"charts": [chart.document() for chart in charts.values()], **(data or {})}),
        palette=palette_css,
        script=script,
        script_hash=_csp_hash(script),
        **context,
    )


def chart_script() -> str:
    """The script that draws charts: `charts.show(element, document of a Chart)`. It needs no other one."""
    return _joined(_CHART_SCRIPTS)


def chart_style() -> str:
    """The style sheet of charts. A page defines the colours: --ink, --muted, --rule, --paper, --card, and
    those of the series.
    """
    return _joined((_CHART_STYLE,))


def _joined(names: Sequence[str]) -> str:
    return "\n".join(read_text(_TEMPLATES / name, MAX_BYTES) for name in names)


def packed(document: Any) -> str:
    """The document as JSON, gzip in base64: deterministic, and without markup.

    Of the levels of gzip, the fastest takes a sixth of the default's time for a tenth more letters.
    """
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), _LEVEL, mtime=0)).decode()


@cache
def _template(name: str) -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(name)


def _inline_script(source: str) -> str:
    """A script that is safe inside a script element, with the line ends that HTML parsers produce."""
    return source.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _csp_hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
