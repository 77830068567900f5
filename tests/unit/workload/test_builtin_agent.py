"""The agent sessions that come along are whole: calls meet their tools, results their calls, phases are known."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.unit.workload.demo_template import small_template

from specdyno.workload.classes import PHASES
from specdyno.workload.sessions import ClassSessions, Session, load_sessions

CHARACTERS_PER_TOKEN = 3.5  # JSON included; SmolLM2's tokenizer makes one token of 3.7 in these sessions
SMALL_CONTEXT = 2048


@cache
def agents() -> ClassSessions:
    return load_sessions("builtin:agent", Path())


def talk(session: Session) -> list[Mapping[str, Any]]:
    """Everything that stands in the history at the end, with the recorded answers."""
    said: list[Mapping[str, Any]] = [{"role": "system", "content": session.system}] if session.system else []
    for turn in session.turns:
        assert turn.recorded is not None, session.id
        said += [*turn.messages, turn.recorded]
    return said


def tokens(session: Session) -> float:
    return len(json.dumps([session.tools, talk(session)], ensure_ascii=False)) / CHARACTERS_PER_TOKEN


def calls(session: Session) -> Iterator[tuple[str, dict[str, Any]]]:
    for turn in session.turns:
        for call in (turn.recorded or {}).get("tool_calls") or []:
            yield call["function"]["name"], json.loads(call["function"]["arguments"])


def test_there_are_many_and_each_has_an_id_of_its_own() -> None:
    found = agents()
    assert (found.skipped, found.duplicates) == ((), 0)
    assert len(found.sessions) >= 30
    assert len({session.id for session in found.sessions}) == len(found.sessions)


def test_sessions_have_four_to_twelve_turns_and_begin_at_once() -> None:
    turns = [len(session.turns) for session in agents().sessions]
    assert (min(turns) >= 4, max(turns) <= 12, len(set(turns)) >= 5) == (True, True, True)
    assert all(session.turns[0].pause_s == 0 for session in agents().sessions)
    assert all(turn.pause_s > 0 for session in agents().sessions for turn in session.turns[1:])


def test_phases_are_known_and_each_occurs_often() -> None:
    counts = Counter(turn.phase for session in agents().sessions for turn in session.turns)
    assert set(counts) == set(PHASES)
    assert min(counts.values()) >= 10
    assert all(len({turn.phase for turn in session.turns}) >= 3 for session in agents().sessions)


def test_a_phase_is_what_its_recorded_answer_does() -> None:
    for session in agents().sessions:
        for number, turn in enumerate(session.turns):
            answer, place = turn.recorded or {}, (session.id, number)
            if turn.phase in ("tool_call", "structured"):
                assert answer.get("tool_calls"), place
            if turn.phase == "acknowledgement":
                assert len(answer["content"].split()) <= 15, place
            if turn.phase == "summary":
                assert len(answer["content"].split()) >= 50, place


@pytest.mark.parametrize("session", agents().sessions, ids=lambda session: session.id)
def test_every_call_names_a_tool_of_its_set_and_meets_its_schema(session: Session) -> None:
    assert session.tools
    functions = [tool["function"] for tool in session.tools]
    schemas = {function["name"]: function["parameters"] for function in functions}
    assert len(schemas) == len(functions)
    for function in functions:
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", function["name"])
        assert function["description"]
        jsonschema.Draft202012Validator.check_schema(function["parameters"])
    called = list(calls(session))
    assert called
    for name, arguments in called:
        jsonschema.Draft202012Validator(schemas[name]).validate(arguments)


def test_call_ids_are_unique_and_the_last_answer_leaves_no_call_open() -> None:
    ids = [
        call["id"]
        for session in agents().sessions
        for turn in session.turns
        for call in (turn.recorded or {}).get("tool_calls") or []
    ]
    assert len(ids) == len(set(ids))
    assert all(not (session.turns[-1].recorded or {}).get("tool_calls") for session in agents().sessions)


def test_single_and_parallel_calls_occur() -> None:
    made = Counter(
        len((turn.recorded or {}).get("tool_calls") or []) for session in agents().sessions for turn in session.turns
    )
    assert made[1] >= 60
    assert sum(count for number, count in made.items() if number > 1) >= 15


def test_histories_grow_to_a_few_thousand_tokens_and_many_fit_a_small_context() -> None:
    sizes = sorted(tokens(session) for session in agents().sessions)
    assert sizes[-1] < 6000
    assert sizes[-1] > 2.5 * sizes[0]
    assert sum(size < 0.9 * SMALL_CONTEXT for size in sizes) >= len(sizes) / 3  # room for longer answers of an engine


def test_no_two_sessions_tell_the_same() -> None:
    told = {}
    for session in agents().sessions:
        words = re.findall(r"\w+", " ".join(str(message["content"]) for message in talk(session)).lower())
        told[session.id] = set(zip(words, words[1:], words[2:], words[3:], words[4:], strict=False))
    near = [
        pair
        for pair in itertools.combinations(told, 2)
        if len(told[pair[0]] & told[pair[1]]) > 0.05 * len(told[pair[0]] | told[pair[1]])
    ]
    assert near == []


def test_every_turn_renders_in_the_chat_template_of_the_demo() -> None:
    template = small_template()
    for session in agents().sessions:
        said = talk(session)
        asked = [place for place, message in enumerate(said) if message["role"] == "assistant"]
        for place in asked:
            text = template.render(messages=said[:place], tools=session.tools, add_generation_prompt=True)
            assert text.endswith("<|im_start|>assistant\n")
            assert text.count("<|im_end|>") == place + (session.system is None)
