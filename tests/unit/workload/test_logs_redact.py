"""Personal data becomes placeholders of the same length; what holds it stays valid."""

from __future__ import annotations

import ast
import re

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdyno.workload.logs.redact import Redactor

TEXT = "Hi Maria, write to jane.doe@acme.example or call +49 170 1234567.\n\nBest regards,\nPeter Müller"
SECRETS = {
    "e-mails": ["jane.doe@acme.example", "a+b@x-y.co.uk"],
    "keys": [
        "sk-abcdefghijklmnop1234",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "d41d8cd98f00b204e9800998ecf8427e",
        "550e8400-e29b-41d4-a716-446655440000",
        "Zm9vYmFyYmF6MTIzNDU2Nzg5MEFCQ0RFRkdISUpLTE1OT1A=",
        "ghp_abcdefghijklmnopqrst",
    ],
    "numbers": ["4111 1111 1111 1111", "+49 170 1234567", "(030) 1234-5678", "12345678", "DE89 3704 0044 0532 0130 00"],
}
ALL = [(kind, value) for kind, values in SECRETS.items() for value in values]


@pytest.mark.parametrize(("kind", "value"), ALL, ids=[value for _, value in ALL])
def test_each_kind_is_replaced_at_the_same_length_and_counted(kind: str, value: str) -> None:
    redactor = Redactor()
    found = redactor.text(f"see {value} there")
    assert value not in found
    assert len(found) == len(f"see {value} there")
    assert found.startswith("see ")
    assert found.endswith(" there")
    assert redactor.counts == {kind: 1}


@pytest.mark.parametrize(
    "text",
    [
        "on 2024-05-12 at 10:33:05", "pi is 3.14159265358", "version 1.20.3", "in 1999 and 123456",
        "a_long_identifier_name_of_some_function_in_python", "x@y",
    ],
)  # fmt: skip
def test_what_is_no_personal_data_by_its_shape_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_names_are_found_by_greeting_and_signature_and_replaced_everywhere() -> None:
    row = {
        "messages": [{"role": "user", "content": TEXT}, {"role": "assistant", "content": "Maria and Peter agree."}],
        "answer": {"role": "assistant", "content": "Dear Maria,\nthe Marias of this world"},
    }
    redactor = Redactor()
    found = orjson.dumps(redactor.request(row)).decode()
    assert not re.search(r"\bMaria\b|Peter|Müller", found)
    assert "Marias of this world" in found
    assert redactor.counts["names"] == 6


def test_the_same_value_gets_the_same_placeholder_within_an_import_and_another_in_the_next() -> None:
    first, second = Redactor(), Redactor()
    mail = "jane.doe@acme.example"
    assert first.text(mail) == first.text(mail)
    assert first.text(mail) in first.text(f"<{mail}>")
    assert first.text(mail) != second.text(mail)


def test_json_arguments_and_code_stay_valid() -> None:
    arguments = orjson.dumps(
        {"to": "jane.doe@acme.example", "id": 12345678, "first_name": "Olga", "key": "a" * 40}
    ).decode()
    code = 'def f(x):\n    key = "sk-abcdefghijklmnop1234"\n    return x * 86400000 + 0x1F\n'
    call = {"id": "c", "type": "function", "function": {"name": "send", "arguments": arguments}}
    row = {
        "messages": [
            {"role": "user", "content": code},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": arguments},
        ]
    }
    messages = Redactor().request(row)["messages"]
    ast.parse(messages[0]["content"])
    made = orjson.loads(messages[1]["tool_calls"][0]["function"]["arguments"])
    assert made.keys() == {"to", "id", "first_name", "key"}
    assert isinstance(made["id"], int)
    assert made["id"] != 12345678
    assert made["first_name"] != "Olga"
    assert messages[2]["content"] == messages[1]["tool_calls"][0]["function"]["arguments"]
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"] == "c"


@given(
    st.recursive(
        st.none() | st.integers(-(2**53), 2**53) | st.text() | st.emails(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    )
)
def test_any_json_stays_json_of_the_same_length(value: object) -> None:
    written = orjson.dumps(value).decode()
    found = Redactor().text(written)
    assert len(found) == len(written)
    assert type(orjson.loads(found)) is type(value)
