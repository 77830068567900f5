"""The rows of production logs, told apart row by row by their keys, into `Request`s.

Field names as their makers document them: OpenAI batch files, LiteLLM's standard logging payload, Langfuse
observations, vLLM's custom data set, plain chat JSON lines. OpenTelemetry spans are `spans`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdyno.workload.logs import spans
from specdyno.workload.logs.request import (
    Refused,
    Request,
    answer_of,
    count,
    decoded,
    first_text,
    messages_of,
    moment,
    sampling_of,
    split_answer,
    tokens,
    tools_of,
)

BATCH, LITELLM, LANGFUSE, OTEL, VLLM, CHAT = "OpenAI batch", "LiteLLM", "Langfuse", "OpenTelemetry", "vLLM", "chat"
_INPUT = ("prompt_tokens", "input_tokens", "input", "promptTokens")
_OUTPUT = ("completion_tokens", "output_tokens", "output", "completionTokens")
_NO_TEXT = ("embedding", "image", "transcription", "speech", "rerank")  # in the call types of LiteLLM
_UNKNOWN = "has the shape of no known log"


def is_result(row: Any) -> bool:
    """Whether a row is the result half of an OpenAI batch."""
    return isinstance(row, dict) and "custom_id" in row and "body" not in row and ("response" in row or "error" in row)


def requests(row: Any, result: Mapping[str, Any] | None = None) -> list[Request]:
    """The requests that one row of a log holds: one, or as many as a batch of spans has generations.

    `result` is the result row that belongs to a request of a batch.

    Raises:
        Refused: the row has none, with the reason.
    """
    if not isinstance(row, dict):
        raise Refused("is no JSON object")
    if "custom_id" in row:
        if isinstance(row.get("body"), dict):
            return [_batch(row, result)]
        if is_result(row):
            raise Refused("is a batch result without its request")
    if "standard_logging_object" in row and isinstance(row["standard_logging_object"], dict):
        row = row["standard_logging_object"]
    if spans.is_spans(row):
        return spans.requests(row, OTEL)
    if "traceId" in row and "type" in row and ("input" in row or "output" in row):
        return [_langfuse(row)]
    if "model_parameters" in row and ("messages" in row or "call_type" in row):
        return [_litellm(row)]
    return [_plain(row)]


def _batch(row: dict[str, Any], result: Mapping[str, Any] | None) -> Request:
    found = _asked(row["body"], BATCH)
    response = result.get("response") if result is not None else None
    if isinstance(response, dict):
        if isinstance(response.get("status_code"), int) and response["status_code"] >= 400:
            raise Refused("failed when it was logged")
        body = response.get("body")
        if isinstance(body, dict):
            _answered(found, body)
    elif result is not None:
        raise Refused("failed when it was logged")
    return found


def _litellm(row: dict[str, Any]) -> Request:
    if row.get("status") == "failure":
        raise Refused("failed when it was logged")
    kind = row.get("call_type")
    if isinstance(kind, str) and "completion" not in kind and any(word in kind for word in _NO_TEXT):
        raise Refused("asks for no text (embeddings, images, sound)")
    parameters = row["model_parameters"] if isinstance(row["model_parameters"], dict) else {}
    messages = row.get("messages")
    body = parameters | {"prompt" if isinstance(messages, str) else "messages": messages}
    found = _asked(body, LITELLM)
    response = row.get("response")
    response = response if type(response) is dict else decoded(response)
    _answered(found, response if isinstance(response, dict) else {"content": response})
    found.prompt_tokens = count(row.get("prompt_tokens")) or found.prompt_tokens
    found.output_tokens = count(row.get("completion_tokens")) or found.output_tokens
    found.start_s, found.end_s = moment(row.get("startTime")), moment(row.get("endTime"))
    found.model = first_text(row.get("model"), found.model)
    found.session = _litellm_session(row)
    found.trace = first_text(row.get("trace_id"))
    return found


def _litellm_session(row: dict[str, Any]) -> str | None:
    metadata = row.get("metadata")
    places = [row.get("litellm_session_id"), row.get("session_id")]
    if isinstance(metadata, dict):
        inner = metadata.get("requester_metadata")
        places = [metadata.get("session_id"), inner.get("session_id") if isinstance(inner, dict) else None, *places]
    return first_text(*places)


def _langfuse(row: dict[str, Any]) -> Request:
    if str(row["type"]).upper() != "GENERATION":
        raise Refused("is an observation that is no generation")
    if row.get("level") == "ERROR":
        raise Refused("failed when it was logged")
    asked, parameters = decoded(row.get("input")), decoded(row.get("modelParameters"))
    body = dict(parameters) if isinstance(parameters, dict) else {}
    if isinstance(asked, dict) and "messages" not in asked and "role" in asked:
        asked = [asked]
    if isinstance(asked, list):
        body["messages"] = asked
    elif isinstance(asked, str):
        body["prompt"] = asked
    elif isinstance(asked, dict):
        body |= asked
    found = _asked(body, LANGFUSE)
    given = _langfuse_output(row)
    _answered(found, given)
    for usage in (row.get("usageDetails"), row.get("usage"), row):
        if found.prompt_tokens is None:
            found.prompt_tokens = tokens(usage, *_INPUT) if usage is not row else tokens(row, "promptTokens")
        if found.output_tokens is None:
            found.output_tokens = tokens(usage, *_OUTPUT) if usage is not row else tokens(row, "completionTokens")
    found.start_s, found.end_s = moment(row.get("startTime")), moment(row.get("endTime"))
    found.model = first_text(row.get("model"), found.model)
    found.session, found.trace = first_text(row.get("sessionId")), first_text(row.get("traceId"))
    return found


def _langfuse_output(row: dict[str, Any]) -> dict[str, Any]:
    """The output as a response; a text or an object that is no message is an answer in JSON."""
    given = decoded(row.get("output"))
    if isinstance(given, dict) and given.keys() & {"choices", "content", "tool_calls", "role"}:
        return given
    if isinstance(given, list):
        return {"choices": [{"message": answer_of(given)}]}
    return {"content": row["output"] if isinstance(row.get("output"), str) else None}


def _plain(row: dict[str, Any]) -> Request:
    """A request as it was sent, alone or with the response beside it; or a bare prompt."""
    body = next((row[key] for key in ("request", "body", "kwargs") if isinstance(row.get(key), dict)), row)
    if "messages" not in body and "prompt" not in body:
        raise Refused("asks for no text (embeddings, images, sound)" if "input" in body else _UNKNOWN)
    found = _asked(body, VLLM if "prompt" in body and "messages" not in body else CHAT)
    if found.format == VLLM:
        found.output_tokens = tokens(body, "output_tokens")
    for key in ("response", "completion", "output", "answer"):
        given = row.get(key)
        if found.answer is None and given is not None:
            _answered(found, given if isinstance(given, dict) else {"content": given})
    usage = row.get("usage")
    if found.prompt_tokens is None:
        found.prompt_tokens = tokens(usage, *_INPUT)
    if found.output_tokens is None:
        found.output_tokens = tokens(usage, *_OUTPUT) or tokens(row, "output_tokens")
    found.start_s = moment(row.get("timestamp") or row.get("start_time") or row.get("created_at") or row.get("created"))
    found.end_s = moment(row.get("end_time"))
    metadata = row["metadata"] if isinstance(row.get("metadata"), dict) else {}
    found.session = first_text(
        row.get("session_id"), row.get("conversation_id"), row.get("sessionId"), metadata.get("session_id")
    )
    return found


def _asked(body: dict[str, Any], form: str) -> Request:
    """What a request body asks, with its parameters."""
    found = Request(form, sampling=sampling_of(body), model=first_text(body.get("model")))
    messages = body.get("messages")
    if messages is not None:
        found.messages, found.answer = split_answer(messages_of(messages))
        if not found.messages:
            raise Refused("holds no message of a user")
    elif isinstance(body.get("prompt"), str):
        found.prompt = body["prompt"]
    elif "input" in body:
        raise Refused(
            "asks for no text (embeddings, images, sound)"
            if form != BATCH
            else "asks the responses API or for embeddings"
        )
    else:
        raise Refused("has no text that was asked")
    tools = body.get("tools") or body.get("functions")
    if tools:
        found.tools = tools_of(tools)
        choice = body.get("tool_choice")
        found.tool_choice = choice if found.tools and isinstance(choice, str | dict) else None
    wanted = body.get("response_format")
    if isinstance(wanted, dict) and isinstance(wanted.get("type"), str):
        found.response_format = wanted
    return found


def _answered(found: Request, response: dict[str, Any]) -> None:
    answer, usage = answer_of(response), response.get("usage")
    if answer is not None:
        found.answer = answer
    found.prompt_tokens, found.output_tokens = tokens(usage, *_INPUT), tokens(usage, *_OUTPUT)
    found.model = found.model or first_text(response.get("model"))
    if found.start_s is None and "created" in response:
        found.start_s = moment(response["created"])
