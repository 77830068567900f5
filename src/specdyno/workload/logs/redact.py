"""Personal data out of texts: e-mails, keys, numbers and names become placeholders of the same length.

A placeholder keeps what the value was made of: letters become letters, digits digits, everything else stays, so that
JSON, code and the arguments of tools stay valid. Within one import the same value gets the same placeholder; the salt
that makes them is drawn by chance and kept nowhere, so nobody can try names to find out which one it was.

It cannot find everything. Not found are names without a sign (no greeting, signature, title, name field or "my name
is"), names in lower case, postal addresses, dates of birth, IP addresses, numbers of fewer than 7 digits, user names,
keys in a shape that it does not know, and whatever a reader would only understand from the text. Read a few rows before
you pass them on.
"""

from __future__ import annotations

import bisect
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

_EMAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2,24}\b")
_KEYS = re.compile(
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"  # JWT
    r"|\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\b(?:ghp|gho|ghs|ghu|glpat|xox[abprs]|hf)[-_][A-Za-z0-9_-]{16,}"
    r"|\bAIza[A-Za-z0-9_-]{30,}|\b[0-9a-f]{32,}\b|\b[0-9A-F]{32,}\b"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
    r"|(?<![A-Za-z0-9+/_-])(?=[A-Za-z0-9+/]*[A-Z])(?=[A-Za-z0-9+/]*[a-z])(?=[A-Za-z0-9+/]*\d[A-Za-z0-9+/]*\d)[A-Za-z0-9+/]{40,}={0,2}"
)
_RUN = re.compile(r"[A-Za-z0-9+/=_.-]{16,}")  # where a key can be at all: the search for keys themselves is slow
_DIGITS = re.compile(r"\d(?:[ ()./-]{0,2}[\dA-Z]){6,}")
_KEPT_PREFIX = re.compile(r"(?:sk|pk|rk|ghp|gho|ghs|ghu|glpat|xox[abprs]|hf)[-_]|AKIA|ASIA|AIza|eyJ")
_CARD = re.compile(r"(?<![\w.+-])\d(?:[ -]?\d){12,18}(?![\w-])|\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}\b")
_PHONE = re.compile(r"(?<![\w.])(?:\+\d{1,3}[ .-]?)?(?:\(\d{1,5}\)[ .-]?)?\d{2,5}(?:[ ./-]\d{2,8}){1,5}(?![\w.]\d|\w)")
_NUMBER = re.compile(r"(?<![\w.])\d{7,}(?![\w]|\.\d)")
_HEX = re.compile(r"[0-9a-f-]+|[0-9A-F-]+")
_DATE = re.compile(r"^(?:\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./]\d{4})")

_NAME = r"[A-ZÀ-ÖØ-Þ][a-zà-öø-ÿ'\u2019]{1,24}(?:-[A-ZÀ-Ö][a-zà-öø-ÿ]{1,24})?"
_FULL = rf"{_NAME}(?:[ ](?:(?:van|von|de|der|da|di|la)[ ])?{_NAME}){{0,2}}"
_GREETINGS = ("Hi", "Hello", "Hey", "Dear", "Hallo", "Liebe", "Lieber", "Bonjour", "Cher", "Chère", "Hola", "Estimado",
              "Estimada", "Ciao", "Caro", "Cara", "Olá")  # fmt: skip
_CLOSINGS = ("egards", "incerely", "heers", "hanks", "hank you", "est", "rüße", "rüßen", "ordialement", "aludos")
_TITLES = ("Mr", "Mrs", "Ms", "Dr", "Prof", "Herr", "Frau", "Mme", "Señor", "Señora")
_OWN = ("y name is", "ch heiße", "e m'appelle", "e llamo", "i chiamo")
_FIELDS = ("name", "surname", "customer", "author", "contact", "recipient", "sender")


def _any(words: Iterable[str]) -> str:
    return "|".join(words)


# Words of which one must be there, and where the name stands then; a plain search for the words first saves most time.
_SIGNS: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    (
        _GREETINGS,
        re.compile(rf"\b(?:{_any(_GREETINGS)})\s+(?:(?:{_any(_TITLES)})\.?\s+)?({_FULL})(?=\s*[,!.:;\n]|\s*$)"),
    ),
    (_CLOSINGS, re.compile(rf"\b\w?(?:{_any(_CLOSINGS)})[,.!]?\s*\n\s*({_FULL})(?=\s*(?:\n|$|,))")),
    (_OWN, re.compile(rf"\b\w(?:{_any(_OWN)})\s+({_FULL})")),
    (_TITLES, re.compile(rf"\b(?:{_any(_TITLES)})\.?[ ]({_FULL})")),
    (_FIELDS, re.compile(rf'"\w*(?:{_any(_FIELDS)})"\s*:\s*"({_FULL})"')),
)
_NO_NAMES = frozenset(
    {
        *(
            "There",
            "All",
            "Team",
            "Everyone",
            "World",
            "Sir",
            "Madam",
            "Support",
            "You",
            "Again",
            "Claude",
            "Assistant",
        ),
        *(
            "Bot",
            "Folks",
            "Guys",
            "None",
            "True",
            "False",
            "The",
            "This",
            "Your",
            "My",
            "We",
            "Our",
            "It",
            "And",
            "But",
        ),
        *("Please", "Thanks", "Thank", "What", "How", "Why", "When", "Zusammen", "Tous", "Todos", "Best", "Kind"),
    }
)
Found = tuple[str, int, int]  # kind, start, end


class Redactor:
    """Redacts the texts of one import and counts what it found, by kind."""

    def __init__(self) -> None:
        self._salt = os.urandom(32)
        self._made: dict[str, str] = {}
        self.counts: Counter[str] = Counter()

    def request(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row with its messages, prompt, answer and tools redacted. Names that are found anywhere go everywhere."""
        parts = [text for message in _messages_in(row) for text in _texts(message)]
        names = self._names([*parts, str(row.get("prompt") or "")])
        for message in _messages_in(row):
            self._message(message, names)
        if isinstance(row.get("prompt"), str):
            row["prompt"] = self.text(row["prompt"], names)
        for key in ("tools", "response_format"):
            if row.get(key):
                written = orjson.dumps(row[key]).decode()
                row[key] = orjson.loads(self._replaced(written, list(self._secrets(written))))
        if isinstance(row.get("system"), str):
            row["system"] = self.text(row["system"], names)
        return row

    def text(self, text: str, names: Iterable[str] = ()) -> str:
        """One text, with the `names` that are known and everything that its shape gives away."""
        return self._replaced(text, [*self._secrets(text), *self._numbers(text), *_known(text, names)])

    def _secrets(self, text: str) -> Iterable[Found]:
        if "@" in text:
            yield from (("e-mails", match.start(), match.end()) for match in _EMAIL.finditer(text))
        for run in _RUN.finditer(text):
            for match in _KEYS.finditer(text, run.start(), run.end()):
                yield "keys", match.start(), match.end()

    def _numbers(self, text: str) -> Iterable[Found]:
        if _DIGITS.search(text):
            for pattern in (_CARD, _PHONE, _NUMBER):
                for match in pattern.finditer(text):
                    if pattern is not _PHONE or _is_phone(match.group()):
                        yield "numbers", match.start(), match.end()

    def _replaced(self, text: str, found: Sequence[Found]) -> str:
        """The text with each stretch replaced once: of two that overlap, the one that was named first."""
        if not found:
            return text
        parts, end = [], 0
        for kind, start, stop in _apart(found):
            parts += [text[end:start], self._made_for(kind, text[start:stop])]
            end = stop
        return "".join([*parts, text[end:]])

    def _message(self, message: dict[str, Any], names: Iterable[str]) -> None:
        content = message.get("content")
        if isinstance(content, str):
            message["content"] = self.text(content, names)
        elif isinstance(content, list):
            for part in content:
                if isinstance(part, dict) and isinstance(part.get("text"), str):
                    part["text"] = self.text(part["text"], names)
        for call in message.get("tool_calls") or ():
            call["function"]["arguments"] = self.text(call["function"]["arguments"], names)
        if isinstance(message.get("name"), str) and message.get("role") == "user":
            message["name"] = self._made_for("names", message["name"])
        if isinstance(message.get("reasoning_content"), str):
            message["reasoning_content"] = self.text(message["reasoning_content"], names)

    def _names(self, texts: Iterable[str]) -> list[str]:
        found: set[str] = set()
        for text in texts:
            for words, sign in _SIGNS:
                if not any(word in text for word in words):
                    continue
                for full in sign.findall(text):
                    parts = [part for part in full.split() if part not in _NO_NAMES]
                    found.update(part for part in parts if len(part) > 2 and part[0].isupper())
        return sorted(found, key=lambda name: (-len(name), name))

    def _made_for(self, kind: str, value: str) -> str:
        self.counts[kind] += 1
        made = self._made.get(value)
        if made is None:
            if len(self._made) > 200_000:  # forgotten ones come out the same again: they depend on the salt alone
                self._made.clear()
            made = self._made[value] = self._placeholder(value)
        return made

    def _placeholder(self, value: str) -> str:
        kept = _KEPT_PREFIX.match(value)
        begin = kept.end() if kept else 0
        digest = hashlib.shake_256(self._salt + value.encode()).digest(len(value))
        letters = "abcdef" if _HEX.fullmatch(value) else "abcdefghijklmnopqrstuvwxyz"
        rest, stream = value[begin:], digest[begin:]
        made = "".join(_like(rest, place, stream[place], letters) for place in range(len(rest)))
        if made == rest:  # one short value in many comes out as itself by chance
            made = "".join(_like(rest, place, stream[place] + 1, letters) for place in range(len(rest)))
        return value[:begin] + made


def _is_phone(found: str) -> bool:
    digits = sum(letter.isdigit() for letter in found)
    least = 7 if found.startswith(("+", "(")) else 9
    return least <= digits <= 15 and not _DATE.match(found)


def _known(text: str, names: Iterable[str]) -> Iterable[Found]:
    for name in names:
        if name in text:
            for match in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text):
                yield "names", match.start(), match.end()


def _apart(found: Sequence[Found]) -> list[Found]:
    """In the order of the text, without those that overlap one that was named before."""
    starts: list[int] = []
    kept: list[Found] = []
    for one in found:
        place = bisect.bisect(starts, one[1])
        free_before = place == 0 or kept[place - 1][2] <= one[1]
        if free_before and (place == len(kept) or one[2] <= kept[place][1]):
            starts.insert(place, one[1])
            kept.insert(place, one)
    return kept


def _like(text: str, place: int, byte: int, letters: str) -> str:
    """Another letter of the same kind. A zero at the beginning stays, and no number begins with a new one."""
    letter = text[place]
    if letter.isdigit():
        if place == 0:
            return "0" if letter == "0" else str(1 + byte % 9)
        return str(byte % 10)
    if letter.isalpha():
        made = letters[byte % len(letters)]
        return made.upper() if letter.isupper() else made
    return letter


def _messages_in(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages = list(row.get("messages") or ())
    for turn in row.get("turns") or ():
        messages += turn["messages"]
        if turn.get("recorded"):
            messages.append(turn["recorded"])
    if row.get("answer"):
        messages.append(row["answer"])
    return messages


def _texts(message: Mapping[str, Any]) -> Iterable[str]:
    content = message.get("content")
    if isinstance(content, str):
        yield content
    for call in message.get("tool_calls") or ():
        yield call["function"]["arguments"]
