"""Which class a request belongs to: the first rule of a table that fits. Every request gets exactly one.

The rules look at what is cheap to see (at most 4,000 characters of question and answer), because every request of a
log passes through them. They are guesses about text, not measurements; `other` keeps what none of them takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from specdyno.workload.logs.request import Request
from specdyno.workload.logs.walk import Walk

SEEN = 4000
"""Characters of a question or an answer that are looked at."""
_ASKED_IN = 300  # characters: what is wanted stands at the beginning; of summaries also at the end

_SUMMARY_WORDS = (
    "summar", "tl;dr", "tldr", "key points", "zusammenfass", "fasse ", "résum", "resum", "riassum", "samenvat",
    "podsumuj", "кратко", "总结", "摘要", "要約", "요약",
)  # fmt: skip
_REASON_WORDS = (
    "step by step", "step-by-step", "prove ", "solve ", "calculate", "how many ", "schritt für schritt",
    "\\frac", "\\sqrt",
)  # fmt: skip
_CODE_VERBS = ("write ", "implement", "refactor", "fix ", "debug", "add ")
_CODE_NOUNS = (
    " function", " class", " method", " script", " code", " test", " query", " endpoint", " regex", " program",
    " component",
)  # fmt: skip
_CODE_SIGNS = (
    "def ", "return ", "import ", "function ", "class ", "#include", "const ", "public ", "</", "SELECT ", "fn ",
    "func ",
)  # fmt: skip
_CODE_LINE = re.compile(
    r"[{};]\s*$|^\s{2,}\S.*[)\]:,]\s*$|^(?:def|class|import|from|return|#include|const|let|var|fn|func|public|private)\b|</\w+>"
)
_WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(slots=True)
class Seen:
    """What the rules look at. `answer` is None where the log has none; the code shares are computed once."""

    request: Request
    question: str
    question_length: int
    answer: str | None
    answer_length: int
    calls: bool
    thought: bool
    code: float


def look(request: Request, found: Walk) -> Seen:
    """The parts of a request that the rules look at."""
    question = found.question[:SEEN]
    message = request.answer
    if message is None:
        return Seen(
            request, question, len(found.question), None, 0, calls=False, thought=False, code=code_share(question)
        )
    whole = message.get("content") or ""
    answer = whole[:SEEN]
    return Seen(
        request, question, len(found.question), answer, len(whole),
        calls="tool_calls" in message, thought="reasoning_content" in message, code=code_share(answer),
    )  # fmt: skip


def code_share(text: str) -> float:
    """Which part of a text is code: what stands in fences, else lines that look like code.

    >>> code_share("plain words, nothing else")
    0.0
    """
    if "```" in text:
        parts = text.split("```")
        return sum(map(len, parts[1::2])) / len(text)
    if "(" not in text and "{" not in text and ";" not in text and "</" not in text:
        return 0.0
    if text.count("\n") < 2 or not _names_any(text, _CODE_SIGNS):
        return 0.0
    lines = [line for line in text.split("\n") if line.strip()][:80]
    return sum(1 for line in lines if _CODE_LINE.search(line)) / len(lines)


def repeated_lines(answer: str, question: str) -> float:
    """Which part of the answer's longer lines stands in the question, of at most 24 of them spread evenly."""
    lines = [line for written in answer.split("\n") if len(line := written.strip()) >= 12]
    if len(lines) > 24:
        lines = lines[:: len(lines) // 24 + 1]
    if not lines:
        return 0.0
    there = {*map(str.strip, question.split("\n"))}
    return len([line for line in lines if line in there]) / len(lines)


def _names_any(text: str, words: tuple[str, ...]) -> bool:
    for word in words:  # noqa: SIM110 - half the time of any(), and every request comes by here
        if word in text:
            return True
    return False


def _tools(seen: Seen) -> bool:
    request = seen.request
    if seen.calls:
        return True
    if not request.tools:
        return False
    return seen.answer is None or isinstance(request.tool_choice, dict) or request.tool_choice == "required"


def _structured(seen: Seen) -> bool:
    wanted = seen.request.response_format
    if wanted is not None and wanted.get("type") != "text":
        return True
    answer = seen.answer
    if not answer or answer[0] not in "{[" or seen.answer_length > SEEN:
        return False
    return answer.rstrip()[-1:] in ("}", "]") and '"' in answer


def _code_edit(seen: Seen) -> bool:
    return seen.answer is not None and seen.code >= 1 / 3 and repeated_lines(seen.answer, seen.question) >= 1 / 3


def _code(seen: Seen) -> bool:
    if seen.code >= 1 / 3 or seen.answer is not None:
        return seen.code >= 1 / 3
    asks = seen.question[:600].lower()
    return _names_any(asks, _CODE_VERBS) and _names_any(asks, _CODE_NOUNS)


def _acknowledgement(seen: Seen) -> bool:
    return seen.answer is not None and 0 < seen.answer_length <= 60


def _summary(seen: Seen) -> bool:
    if seen.question_length < 1000:
        return False
    asks = _names_any(seen.question[:_ASKED_IN].lower(), _SUMMARY_WORDS) or (
        seen.question_length <= SEEN and _names_any(seen.question[-_ASKED_IN:].lower(), _SUMMARY_WORDS)
    )
    short = seen.answer is not None and 0 < seen.answer_length <= seen.question_length / 4
    return asks or (seen.question_length >= 4000 and short)


def _reasoning(seen: Seen) -> bool:
    answer = seen.answer or ""
    if seen.thought or "\\boxed" in answer or answer.startswith("<think>"):
        return True
    return _names_any(seen.question[:_ASKED_IN].lower(), _REASON_WORDS)


def _chat(seen: Seen) -> bool:
    if seen.request.messages is None or seen.answer == "":
        return False
    return _WORD.search(seen.question) is not None or max(seen.question[:40]) >= "\u3040"


RULES: tuple[tuple[str, Callable[[Seen], bool]], ...] = (
    ("tools", _tools),
    ("structured", _structured),
    ("code_edit", _code_edit),
    ("code", _code),
    ("acknowledgement", _acknowledgement),
    ("summary", _summary),
    ("reasoning", _reasoning),
    ("chat", _chat),
)
OTHER = "other"
CLASSES = (*(name for name, _ in RULES), OTHER)


def class_of(seen: Seen) -> str:
    """The class of a request: the first rule that fits, else `other`."""
    for name, fits in RULES:
        if fits(seen):
            return name
    return OTHER
