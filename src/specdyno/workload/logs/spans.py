"""OpenTelemetry GenAI spans as JSON, in both shapes of messages.

Reads plain spans (`attributes` as a mapping or a list) and OTLP (`resourceSpans`). Newer spans carry
`gen_ai.input.messages` and `gen_ai.output.messages` with parts; older ones carry events (`gen_ai.user.message`,
`gen_ai.choice`, `gen_ai.content.prompt`) or flat attributes (`gen_ai.prompt.0.role`, `gen_ai.completion.0.content`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from specdyno.workload.logs.request import (
    Refused,
    Request,
    answer_of,
    calls_of,
    decoded,
    first_text,
    messages_of,
    moment,
    sampling_of,
    tokens,
    tools_of,
)

_ASKING = frozenset({"chat", "text_completion", "generate_content", "completion"})
_DETAILS = "gen_ai.client.inference.operation.details"


def is_spans(row: Mapping[str, Any]) -> bool:
    if "resourceSpans" in row or "scopeSpans" in row:
        return True
    attributes = row.get("attributes")
    if isinstance(attributes, dict):
        return any(key.startswith("gen_ai.") for key in attributes)
    if isinstance(attributes, list):
        return any(isinstance(one, dict) and str(one.get("key")).startswith("gen_ai.") for one in attributes)
    return "spanId" in row or "span_id" in row


def requests(row: Mapping[str, Any], form: str) -> list[Request]:
    """The generations among the spans of one row.

    Raises:
        Refused: there is none, with the reason of the first span.
    """
    found: list[Request] = []
    reason: Refused | None = None
    for span in _spans(row):
        try:
            found.append(_request(span, form))
        except Refused as why:
            reason = reason or why
    if not found:
        raise reason or Refused("holds no span")
    return found


def _spans(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "resourceSpans" in row or "scopeSpans" in row:
        resources = row["resourceSpans"] if isinstance(row.get("resourceSpans"), list) else [row]
        for resource in resources:
            for scope in (resource.get("scopeSpans") or ()) if isinstance(resource, dict) else ():
                yield from (span for span in scope.get("spans") or () if isinstance(span, dict))
    else:
        yield row


def _request(span: Mapping[str, Any], form: str) -> Request:
    values = _attributes(span.get("attributes"))
    events = [event for event in span.get("events") or () if isinstance(event, dict)]
    for event in events:
        if event.get("name") == _DETAILS:
            values = {**values, **_attributes(event.get("attributes"))}
    operation = values.get("gen_ai.operation.name") or values.get("llm.request.type")
    if not any(key.startswith("gen_ai.") for key in values) or (operation is not None and operation not in _ASKING):
        raise Refused("is a span that is no generation")
    asked, answer = _messages(values, events)
    if not asked:
        raise Refused("was logged without its text")
    found = Request(form, messages=messages_of(asked), answer=answer)
    found.sampling = sampling_of(
        {name: values.get(f"gen_ai.request.{name}") for name in ("temperature", "top_p", "max_tokens")}
        | {"stop": values.get("gen_ai.request.stop_sequences")}
    )
    found.tools = tools_of(values.get("gen_ai.tool.definitions")) or tools_of(_flat(values, "llm.request.functions"))
    if values.get("gen_ai.output.type") == "json":
        found.response_format = {"type": "json_object"}
    found.prompt_tokens = tokens(values, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
    found.output_tokens = tokens(values, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
    found.start_s = moment(_either(span, "startTimeUnixNano", "start_time", "startTime"))
    found.end_s = moment(_either(span, "endTimeUnixNano", "end_time", "endTime"))
    context = span["context"] if isinstance(span.get("context"), dict) else {}
    found.session = first_text(values.get("gen_ai.conversation.id"), values.get("session.id"))
    found.trace = first_text(span.get("traceId"), span.get("trace_id"), context.get("trace_id"))
    found.model = first_text(values.get("gen_ai.request.model"), values.get("gen_ai.response.model"))
    return found


def _either(values: Mapping[str, Any], *names: str) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _attributes(value: Any) -> dict[str, Any]:
    """A mapping of attributes, from a mapping or from OTLP's list of keys and typed values."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, list):
        return {}
    return {str(one.get("key")): _value(one.get("value")) for one in value if isinstance(one, dict)}


def _value(value: Any) -> Any:
    if not isinstance(value, dict) or len(value) != 1:
        return value
    kind, inner = next(iter(value.items()))
    if kind == "arrayValue":
        return [_value(one) for one in (inner or {}).get("values") or ()]
    if kind == "kvlistValue":
        return _attributes((inner or {}).get("values") or [])
    if kind == "intValue":
        return int(inner) if str(inner).lstrip("-").isdigit() else None
    return inner


def _messages(values: Mapping[str, Any], events: list[dict[str, Any]]) -> tuple[list[Any], dict[str, Any] | None]:
    newer = decoded(values.get("gen_ai.input.messages"))
    if isinstance(newer, list):
        asked = _instructions(values) + [one for message in newer for one in _of_parts(message)]
        given = decoded(values.get("gen_ai.output.messages"))
        answers = [one for message in given for one in _of_parts(message)] if isinstance(given, list) else []
        return asked, answer_of(answers[0]) if answers else None
    flat = _flat(values, "gen_ai.prompt")
    if flat:
        given = _flat(values, "gen_ai.completion")
        return [_of_flat(one) for one in flat], answer_of(_of_flat(given[0])) if given else None
    return _of_events(events)


def _instructions(values: Mapping[str, Any]) -> list[Any]:
    given = decoded(values.get("gen_ai.system_instructions"))
    if isinstance(given, list):
        given = "\n".join(str(part.get("content") or "") for part in given if isinstance(part, dict))
    return [{"role": "system", "content": given}] if isinstance(given, str) and given.strip() else []


def _of_parts(message: Any) -> list[dict[str, Any]]:  # noqa: C901 - one branch for each type of part
    """A message with parts as one message, or as one for each result of a tool."""
    if not isinstance(message, dict):
        raise Refused("holds a message that is no object")
    parts = message.get("parts")
    if not isinstance(parts, list):
        return [message]
    role, texts, thoughts, calls, results = message.get("role"), [], [], [], []
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            texts.append(str(part.get("content") or ""))
        elif kind == "reasoning":
            thoughts.append(str(part.get("content") or ""))
        elif kind == "tool_call":
            calls.append(part)
        elif kind == "tool_call_response":
            answer = part.get("response", part.get("result"))
            text = answer if isinstance(answer, str) else orjson.dumps(answer).decode()
            results.append({"role": "tool", "tool_call_id": part.get("id"), "content": text})
        elif kind in ("blob", "file", "uri"):
            raise Refused(f"holds {'images' if part.get('modality') == 'image' else 'files'}")
        else:
            raise Refused("holds parts of an unknown type")
    if results:
        return results
    made = calls_of(calls)
    found: dict[str, Any] = {"role": role, "content": "\n".join(texts) if texts or not made else None}
    if made:
        found["tool_calls"] = made
    if thoughts:
        found["reasoning_content"] = "\n".join(thoughts)
    return [found]


def _flat(values: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """The entries of `prefix.0.key`, `prefix.1.key`, ..., nested keys as nested mappings."""
    entries: dict[int, dict[str, Any]] = {}
    for key, value in values.items():
        if not key.startswith(prefix + "."):
            continue
        number, _, rest = key[len(prefix) + 1 :].partition(".")
        if number.isdigit() and rest:
            entries.setdefault(int(number), {})[rest] = value
    return [entries[number] for number in sorted(entries)]


def _of_flat(entry: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"role": entry.get("role", "assistant"), "content": decoded_text(entry.get("content"))}
    calls = [
        {"id": call.get("id"), "name": call.get("name") or call.get("function.name"),
         "arguments": call.get("arguments") or call.get("function.arguments")}
        for call in _flat(entry, "tool_calls")
    ]  # fmt: skip
    made = calls_of(calls)
    if made:
        found |= {"tool_calls": made, "content": found["content"] or None}
    if entry.get("tool_call_id") is not None:
        found["tool_call_id"] = entry["tool_call_id"]
    return found


def decoded_text(content: Any) -> Any:
    """Parts that were logged as JSON text; any other text as it is."""
    found = decoded(content)
    if isinstance(found, list) and found and all(isinstance(one, dict) and "type" in one for one in found):
        return found
    return content


def _of_events(events: list[dict[str, Any]]) -> tuple[list[Any], dict[str, Any] | None]:
    asked: list[Any] = []
    answer: dict[str, Any] | None = None
    for event in events:
        name = str(event.get("name") or event.get("event_name") or "")
        body = _body(event)
        if name == "gen_ai.choice":
            answer = answer or answer_of(decoded(body.get("message")) or body)
        elif name == "gen_ai.content.prompt":
            told = decoded(body.get("gen_ai.prompt"))
            asked += told if isinstance(told, list) else [{"role": "user", "content": told}]
        elif name == "gen_ai.content.completion":
            answer = answer or answer_of(decoded(body.get("gen_ai.completion")))
        elif name.startswith("gen_ai.") and name.endswith(".message"):
            role = body.get("role") or name.split(".")[1]
            message = {"role": role, "content": body.get("content")}
            if role == "tool":
                message["tool_call_id"] = body.get("id") or body.get("tool_call_id")
            if body.get("tool_calls"):
                message["tool_calls"] = decoded(body["tool_calls"])
            asked.append(message)
    return asked, answer


def _body(event: Mapping[str, Any]) -> dict[str, Any]:
    values = _attributes(event.get("attributes"))
    told = decoded(event.get("body") or values.get("gen_ai.event.content") or values.get("event.body"))
    return {**values, **told} if isinstance(told, dict) else values
