"""Makes text from prompts, engines, models and plans harmless for the medium it is shown in.

Owns what may leave as text: no control characters, no escape sequences, no characters that reorder or hide others.
HTML needs no function here: the page's templates escape everything, and charts use `html.escape`.
"""

from __future__ import annotations

import html
import re

_ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x07|\x1b\\|$)|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]", re.DOTALL
)
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u00ad\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"  # hide or reorder text
    "\U000e0000-\U000e007f]"  # tags: invisible copies of ASCII
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_MARKDOWN = re.compile(r"([\\`*_\[\]#|~$@:])")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
REPLACEMENT = "\ufffd"


def sanitise(text: str, *, lines: bool = False) -> str:
    r"""One line of visible text; `lines=True` keeps line breaks.

    >>> sanitise("a\x1b[31mred\x1b[0m\nb\u202e")
    'ared b'
    """
    text = _ESCAPE_SEQUENCE.sub("", text.replace("\r\n", "\n"))
    text = _SURROGATE.sub(REPLACEMENT, _CONTROL.sub("", text)).replace("\t", "    " if lines else " ")
    return text if lines else " ".join(text.split())


def markdown(text: str) -> str:
    r"""Text for a Markdown paragraph or table cell: neither markup nor HTML, and no link is made of it.

    >>> print(markdown("a|b <i> *c*"))
    a\|b &lt;i&gt; \*c\*
    """
    text = html.escape(sanitise(text), quote=False)
    return _MARKDOWN.sub(r"\\\1", text).replace("www.", "www\\.")


def cell(text: str) -> str:
    """Text for a CSV cell that no spreadsheet takes for a formula: an apostrophe goes before it.

    >>> cell("=1+1")
    "'=1+1"
    """
    text = sanitise(text)
    return f"'{text}" if text.startswith(_FORMULA) else text
