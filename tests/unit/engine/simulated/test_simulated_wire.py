import asyncio
import json
import signal
import subprocess
import sys
import time

import pytest

from specdyno.engine.simulated.settings import read_settings

RUNNING = "vllm:num_requests_running"
SPEC = "vllm:spec_decode_num_"
DETAILED = ("--per-request-spec-decode-metrics", "detailed")


async def test_a_chat_streams_a_role_then_a_chunk_a_step_then_usage(boot, eagle3):
    engine = await boot(*DETAILED, spec=eagle3)
    answered = await engine.chat("a question")
    first, *steps, closing = answered.events
    assert answered.done
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert closing["choices"] == []
    assert {step["choices"][0]["finish_reason"] for step in steps[:-1]} == {None}
    assert steps[-1]["choices"][0]["finish_reason"] == "stop"
    spec = answered.spec
    assert len(steps) == 1 + spec["num_spec_steps"]
    words = [len(step["choices"][0]["delta"]["content"].split()) for step in steps]
    assert words[0] == 1
    untrimmed = [1 + accepted for accepted in spec["per_step_accepted"]]
    assert words[1:-1] == untrimmed[:-1]
    assert sum(words) == answered.usage["completion_tokens"] - 1  # the end-of-text token shows nothing
    assert max(words) > 1


async def test_the_per_request_object_agrees_with_itself(boot, eagle3):
    engine = await boot(*DETAILED, spec=eagle3, variable_drafts=True, coverage=0.7)
    spec = (await engine.chat(max_tokens=200, ignore_eos=True)).spec
    accepted, drafted = spec["per_step_accepted"], spec["per_step_drafted"]
    assert spec["num_spec_tokens"] == 3
    assert spec["num_spec_steps"] == len(accepted) == len(drafted) == sum(spec["acceptance_histogram"])
    assert spec["num_accepted_draft_tokens"] == sum(accepted)
    assert spec["num_draft_tokens"] == sum(drafted)
    assert spec["acceptance_histogram"] == [accepted.count(number) for number in range(4)]
    assert spec["mean_acceptance_length"] == pytest.approx(1 + sum(accepted) / len(accepted))
    assert spec["draft_acceptance_rate"] == pytest.approx(sum(accepted) / sum(drafted))
    assert set(drafted) == {1, 2, 3}
    assert all(taken <= proposed for taken, proposed in zip(accepted, drafted, strict=True))


async def test_summary_leaves_the_steps_out(boot, eagle3):
    engine = await boot("--per-request-spec-decode-metrics", "summary", spec=eagle3)
    assert "per_step_accepted" not in (await engine.chat()).spec


async def test_answers_are_the_same_with_and_without_speculation(boot, eagle3):
    plain, speculating = await boot(), await boot(spec=eagle3)
    for prompt in ("one", "two", "three"):
        expected, answered = await plain.chat(prompt), await speculating.chat(prompt)
        assert answered.text == expected.text
        assert answered.usage == expected.usage
        assert len(answered.events) < len(expected.events)
    whole = await speculating.chat("one", stream=False)
    assert whole.body["choices"][0]["message"]["content"] == (await plain.chat("one")).text


async def test_max_tokens_cuts_and_says_length(boot, eagle3):
    engine = await boot(spec=eagle3)
    for key in ("max_tokens", "max_completion_tokens"):
        answered = await engine.chat(**{key: 7})
        assert answered.usage["completion_tokens"] == len(answered.text.split()) == 7
        assert answered.events[-2]["choices"][0]["finish_reason"] == "length"


async def test_usage_is_left_out_unless_asked_for(boot):
    engine = await boot()
    answered = await engine.chat(stream_options=None)
    assert answered.usage is None
    assert answered.done


async def test_completions_carry_text(boot):
    engine = await boot()
    streamed = await engine.post("/v1/completions", {"model": "m", "prompt": "hi", "stream": True, "max_tokens": 9})
    whole = await engine.post("/v1/completions", {"model": "m", "prompt": ["hi"], "max_tokens": 9})
    assert [event["object"] for event in streamed.events] == ["text_completion"] * 9
    assert "".join(event["choices"][0]["text"] for event in streamed.events) == whole.body["choices"][0]["text"]
    assert whole.body["usage"] == {"prompt_tokens": 1, "completion_tokens": 9, "total_tokens": 10}


async def test_tool_calls_are_streamed_in_parts(boot, eagle3):
    engine = await boot(spec=eagle3)
    properties = {"city": {"type": "string"}, "days": {"type": "integer"}}
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"properties": properties}}}
    answered = await engine.chat(tools=[tool])
    parts = [call for calls in answered.deltas("tool_calls") for call in calls]
    assert parts[0]["function"]["name"] == "weather"
    assert all("name" not in part["function"] and "id" not in part for part in parts[1:])
    assert json.loads("".join(part["function"]["arguments"] for part in parts)).keys() == properties.keys()
    assert answered.events[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert (await engine.chat(tools=[tool], tool_choice="none")).deltas("tool_calls") == []


async def test_reasoning_comes_before_the_answer(boot, eagle3):
    engine = await boot(spec=eagle3, reasoning=0.5)
    answered = await engine.chat()
    thought = len("".join(answered.deltas("reasoning_content")).split())
    assert thought == answered.usage["completion_tokens_details"]["reasoning_tokens"]
    assert thought == pytest.approx(len(answered.text.split()), abs=1)


async def test_the_class_of_a_request_is_named_in_body_or_header(boot):
    engine = await boot(output_tokens={"long": 200, "short": 20}, output_spread=0)
    in_body = await engine.chat(specdyno_class="long")
    in_header = await engine.chat(headers={"X-Specdyno-Class": "short"})
    assert in_body.usage["completion_tokens"] == 200
    assert in_header.usage["completion_tokens"] == 20


async def test_requests_that_cannot_be_served_are_answered_with_an_error(boot):
    engine = await boot()
    for status, keys in (
        (404, {"model": "other"}),
        (400, {"messages": []}),
        (400, {"messages": [{"role": "user", "content": 3}]}),
        (400, {"max_tokens": 0}),
        (400, {"max_tokens": 99_999}),
        (400, {"n": 2}),
    ):
        answered = await engine.chat(**keys)
        assert answered.status == status, keys
        assert answered.body["error"]["code"] == status


async def test_a_key_is_asked_for_where_one_is_set(boot):
    engine = await boot("--api-key", "not-real")
    assert (await engine.chat()).status == 401
    assert (await engine.chat(headers={"Authorization": "Bearer not-real"})).status == 200


async def test_the_engine_says_what_it_resolved(boot, eagle3):
    engine = await boot("--enforce-eager", "--max-num-seqs", "5", spec=eagle3)
    info = json.loads((await engine.get("/server_info"))[1])
    assert info["speculative_config"] == eagle3
    assert info["settings"]["enforce_eager"] is True
    assert info["settings"]["max_num_seqs"] == 5
    assert "speculative_config=SpeculativeConfig(method='eagle3', model='org/draft', num_spec_tokens=3)" in engine.log
    assert json.loads((await engine.get("/v1/models"))[1])["data"][0]["id"] == "m"
    assert json.loads((await engine.get("/version"))[1])["version"] == info["version"]


async def test_arms_resolve_to_the_same_settings(boot, eagle3):
    plain, speculating = await boot(), await boot(*DETAILED, spec=eagle3)
    infos = [json.loads((await engine.get("/server_info"))[1]) for engine in (plain, speculating)]
    assert infos[0].pop("speculative_config") is None
    assert infos[1].pop("speculative_config") == eagle3
    assert infos[0] == infos[1]


async def test_health_waits_for_the_model(boot):
    engine = await boot(wait=False, scale=1.0, ready_delay_s=0.6)
    started = time.monotonic()
    await engine.ready()
    assert time.monotonic() - started >= 0.6


async def test_generated_minus_first_tokens_is_steps_plus_accepted_minus_trimmed(boot, eagle3):
    engine = await boot(*DETAILED, spec=eagle3, coverage=0.8)
    answers = await asyncio.gather(*(engine.chat(f"prompt {number}", max_tokens=60) for number in range(12)))
    counted = await engine.counters()
    tokens = sum(answered.usage["completion_tokens"] for answered in answers)
    steps = sum(len(answered.events) - 3 for answered in answers)  # role, first token, usage
    accepted = sum(answered.spec["num_accepted_draft_tokens"] for answered in answers)
    trimmed = 12 + steps + accepted - tokens
    assert 0 <= trimmed <= 12 * 3
    assert counted["vllm:generation_tokens_total"] == tokens
    assert counted["vllm:time_to_first_token_seconds_count"] == 12
    assert counted["vllm:inter_token_latency_seconds_count"] == steps
    assert counted[f"{SPEC}accepted_tokens_total"] == accepted
    assert counted[f"{SPEC}drafts_total"] == sum(answered.spec["num_spec_steps"] for answered in answers) < steps
    assert counted[f"{SPEC}draft_tokens_total"] == 3 * counted[f"{SPEC}drafts_total"]
    by_position = [counted[f"{SPEC}accepted_tokens_per_pos_total", str(place)] for place in range(3)]
    assert sum(by_position) == accepted
    assert by_position == sorted(by_position, reverse=True)
    assert counted["vllm:request_success_total", "stop"] + counted["vllm:request_success_total", "length"] == 12
    assert counted["vllm:prompt_tokens_total"] == sum(answered.usage["prompt_tokens"] for answered in answers)
    assert counted["vllm:num_requests_running"] == 0
    assert time.time() - 60 < counted["process_start_time_seconds"] <= time.time()
    assert counted[f"{SPEC}drafts_created"] >= counted["process_start_time_seconds"]


async def test_plain_decoding_takes_a_step_a_token_and_exports_no_drafts(boot):
    engine = await boot()
    answered = await engine.chat()
    counted = await engine.counters()
    assert not [name for name in counted if "spec_decode" in str(name)]
    assert counted["vllm:inter_token_latency_seconds_count"] == answered.usage["completion_tokens"] - 1


async def test_prompts_seen_before_hit_the_prefix_cache(boot):
    engine = await boot("--enable-prompt-tokens-details")
    bare = await boot("--no-enable-prefix-caching")
    for each in (engine, bare):
        await each.chat("x" * 400)
    again = await engine.chat("x" * 400)
    assert again.usage["prompt_tokens_details"] == {"cached_tokens": 96}
    assert (await engine.counters())["vllm:prefix_cache_hits_total"] == 96
    await bare.chat("x" * 400)
    assert (await bare.counters())["vllm:prefix_cache_hits_total"] == 0


async def test_acceptance_repeats_with_the_boot_seed_and_not_without(boot, eagle3):
    engines = [await boot(*DETAILED, "--boot-seed", seed, spec=eagle3) for seed in ("1", "1", "2")]
    drawn = [(await engine.chat(max_tokens=100, ignore_eos=True)).spec["per_step_accepted"] for engine in engines]
    assert drawn[0] == drawn[1] != drawn[2]


async def test_a_client_that_leaves_frees_its_place(boot):
    engine = await boot(scale=1.0)
    leaving = asyncio.create_task(engine.chat(ignore_eos=True, max_tokens=5000))
    await engine.until(lambda counted: counted[RUNNING] == 1)
    leaving.cancel()
    counted = await engine.until(lambda counted: counted[RUNNING] == 0)
    assert counted["vllm:request_success_total", "abort"] == 1


async def test_requests_beyond_the_limit_wait(boot):
    engine = await boot("--max-num-seqs", "2", scale=1.0)
    tasks = [asyncio.create_task(engine.chat(str(number), ignore_eos=True, max_tokens=5000)) for number in range(5)]
    await engine.until(lambda counted: counted[RUNNING] + counted["vllm:num_requests_waiting"] == 5)
    counted = await engine.until(lambda counted: counted[RUNNING] == 2)
    assert counted["vllm:num_requests_waiting"] == 3
    for task in tasks:
        task.cancel()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_cleanly_even_under_load(boot, number):
    engine = await boot(scale=1.0)
    task = asyncio.create_task(engine.chat(ignore_eos=True, max_tokens=5000))
    await engine.until(lambda counted: counted[RUNNING] == 1)
    engine.process.send_signal(number)
    assert engine.process.wait(timeout=5) == 0
    task.cancel()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--model", "m", "--fault", "nonsense"), "there is no fault"),
        (("--model", "m", "--truth", "{"), "truth"),
        (("--model", "m", "--speculative-config", '{"method": "ngram"}'), "num_speculative_tokens"),
        (("--model", "m", *DETAILED), "needs --speculative-config"),
        (("--model", "m", "--time-scale", "0"), "--time-scale"),
        (("--model", "m", "--max-num-seqs", "0"), "--max-num-seqs"),
    ],
)
def test_a_wrong_command_line_ends_before_it_listens(flags, says, capsys):
    with pytest.raises(SystemExit) as ended:
        read_settings(flags)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_it_starts_without_the_numeric_libraries():
    heavy = "{'numpy', 'scipy', 'pydantic', 'typer', 'rich'}"
    code = f"import sys, specdyno.engine.simulated.__main__; print(sorted({heavy} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20)
    assert loaded.stdout.strip() == "[]"


async def test_a_taken_port_is_refused(boot):
    engine = await boot()
    late = await boot("--port", engine.url.rpartition(":")[2], wait=False)
    assert late.process.wait(timeout=10) == 1
    assert "cannot listen" in late.log
