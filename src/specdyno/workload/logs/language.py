"""The language of a text, from its script or from its small words; none where neither says enough."""

from __future__ import annotations

import re

_LOOKED_AT = 320
_SMALL_WORDS = {
    "en": "the and you that with for this are what how have not can from which please",
    "de": "der die das und ist nicht mit ein eine ich wie auf für von sich bitte",
    "fr": "les des est une dans pour que qui avec vous sur pas plus cette comment et",
    "es": "los las una para que con por como está del más cómo qué esta tiene y",
    "it": "gli che per una con non sono come della questo più cosa nel alla perché",
    "pt": "os uma para que com não como mais você por dos são está isso em",
    "nl": "het een van dat niet met voor zijn hoe ik naar wat ook maar op",
    "pl": "nie się jest na do że jak co to czy proszę dla oraz tego",
    "tr": "bir ve bu için ile ne olarak çok daha değil gibi",
}
_LANGUAGES: dict[str, list[str]] = {}
for _code, _words in _SMALL_WORDS.items():
    for _word in _words.split():
        _LANGUAGES.setdefault(_word, []).append(_code)
_SCRIPTS = (
    ("ja", re.compile("[\u3040-\u30ff]")), ("ko", re.compile("[\uac00-\ud7af]")), ("zh", re.compile("[\u4e00-\u9fff]")),
    ("ru", re.compile("[\u0400-\u04ff]{2}")), ("ar", re.compile("[\u0600-\u06ff]{2}")),
    ("hi", re.compile("[\u0900-\u097f]{2}")), ("el", re.compile("[\u0370-\u03ff]{3}")),
    ("he", re.compile("[\u0590-\u05ff]{2}")), ("th", re.compile("[\u0e00-\u0e7f]{2}")),
)  # fmt: skip


def language_of(text: str) -> str | None:
    """A two-letter code, None where the text is too short or of no language that is known here.

    Cyrillic counts as ru and Han without kana as zh, which other languages also use.

    >>> language_of("Wie ist das Wetter und was mache ich nicht?")
    'de'
    """
    text = text[:_LOOKED_AT]
    if not text.isascii():
        for code, script in _SCRIPTS:
            if script.search(text):
                return code
    hits: dict[str, int] = {}
    for word in text.lower().split():
        for code in _LANGUAGES.get(word, ()):
            hits[code] = hits.get(code, 0) + 1
    most = max(hits.values(), default=0)
    return next(code for code in _SMALL_WORDS if hits.get(code) == most) if most > 1 else None
