import asyncio
import json
import math
import os
import signal
import time

import aiohttp
import psutil
import pytest

DRAFTS = "vllm:spec_decode_num_drafts_total"


def _fault(*specs: str) -> list[str]:
    return [part for spec in specs for part in ("--fault", spec)]


async def test_refuse_boot_names_the_missing_draft(boot, eagle3):
    engine = await boot(*_fault("refuse_boot"), spec=eagle3, wait=False)
    assert engine.process.wait(timeout=10) == 1
    assert "org/draft does not appear to have a file named config.json" in engine.log


async def test_boot_hang_never_becomes_ready_and_can_be_stopped(boot):
    engine = await boot(*_fault("boot_hang"), wait=False)
    deadline = time.monotonic() + 10
    while "listening" not in engine.log:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.1)
    assert (await engine.get("/health"))[0] == 503
    engine.process.terminate()
    assert engine.process.wait(timeout=5) == 0


async def test_die_after_kills_the_process_during_that_request(boot):
    engine = await boot(*_fault("die_after:2"))
    assert (await engine.chat("one")).done
    with pytest.raises(aiohttp.ClientError):
        await engine.chat("two")
    assert engine.process.wait(timeout=5) == -signal.SIGKILL


@pytest.mark.parametrize("status", [500, 400])
async def test_http_errors_come_with_a_body_in_their_share(boot, status):
    engine = await boot(*_fault(f"http_{status}:0.5"), output_tokens=2)
    answers = await asyncio.gather(*(engine.chat(str(number)) for number in range(60)))
    failed = [answered for answered in answers if answered.status == status]
    assert {answered.body["error"]["code"] for answered in failed} == {status}
    assert 14 <= len(failed) <= 46  # four standard deviations


async def test_break_stream_closes_half_way(boot):
    engine = await boot(*_fault("break_stream"), scale=0.1)
    received = bytearray()
    with pytest.raises(aiohttp.ClientPayloadError):
        await engine.receive(received, wait_s=10)
    assert b'"content"' in received
    assert b"[DONE]" not in received
    assert b'finish_reason":"stop' not in received


async def test_hang_stream_stops_sending_and_keeps_the_connection(boot):
    engine = await boot(*_fault("hang_stream"))
    received = bytearray()
    with pytest.raises(TimeoutError):
        await engine.receive(received, wait_s=1.0)
    assert b'"content"' in received
    assert b"[DONE]" not in received


async def test_a_share_of_broken_streams_leaves_the_others_whole(boot):
    engine = await boot(*_fault("break_stream:0.5"))
    ended = await asyncio.gather(*(engine.chat(str(number)) for number in range(40)), return_exceptions=True)
    broken = [each for each in ended if isinstance(each, aiohttp.ClientError)]
    assert 7 <= len(broken) <= 33
    assert all(each.done for each in ended if each not in broken)


async def test_no_usage_holds_for_streams_and_bodies(boot):
    engine = await boot(*_fault("no_usage"))
    answered = await engine.chat()
    assert answered.usage is None
    assert answered.done
    assert (await engine.chat(stream=False)).body["usage"] is None


async def test_inactive_speculation_is_configured_and_never_drafts(boot, eagle3):
    engine = await boot(*_fault("spec_inactive"), spec=eagle3)
    answered = await engine.chat()
    counted = await engine.counters()
    assert json.loads((await engine.get("/server_info"))[1])["speculative_config"] == eagle3
    assert counted[DRAFTS] == 0
    assert len(answered.events) == answered.usage["completion_tokens"] + 2


async def test_wrong_k_is_in_force_everywhere(boot, eagle3):
    engine = await boot(*_fault("wrong_k:1"), spec=eagle3)
    await engine.chat()
    counted = await engine.counters()
    positions = [name[1] for name in counted if name[0] == "vllm:spec_decode_num_accepted_tokens_per_pos_total"]
    assert positions == ["0"]
    assert counted["vllm:spec_decode_num_draft_tokens_total"] == counted[DRAFTS] > 0
    assert "num_spec_tokens=1)" in engine.log


async def test_counters_jump_back_once(boot):
    engine = await boot(*_fault("counter_reset:2"))
    await engine.chat("one")
    started = await engine.counters()
    await engine.chat("two")
    reset = await engine.counters()
    assert started["vllm:generation_tokens_total"] > reset["vllm:generation_tokens_total"] == 0
    assert started["process_start_time_seconds"] == reset["process_start_time_seconds"]
    await engine.chat("three")
    await engine.chat("four")
    assert (await engine.counters())["vllm:time_to_first_token_seconds_count"] == 2


async def test_metrics_can_be_unreadable_or_absent(boot, eagle3):
    unreadable, absent = await boot(*_fault("nan_metrics"), spec=eagle3), await boot(*_fault("no_metrics"))
    counted = await unreadable.counters()
    assert math.isnan(counted[DRAFTS])
    assert math.isnan(counted["vllm:generation_tokens_total"])
    assert (await absent.get("/metrics"))[0] == 404


async def test_a_baseline_can_speculate_unasked(boot):
    engine = await boot(*_fault("baseline_speculates"))
    await engine.chat()
    assert (await engine.counters())[DRAFTS] > 0
    assert json.loads((await engine.get("/server_info"))[1])["speculative_config"]["method"] == "ngram"


async def test_slow_stop_ignores_the_first_signal_for_a_while(boot):
    engine = await boot(*_fault("slow_stop:0.8"))
    started = time.monotonic()
    engine.process.terminate()
    assert engine.process.wait(timeout=10) == 0
    assert time.monotonic() - started >= 0.8


async def test_a_child_outlives_the_server_and_dies_with_the_group(boot):
    engine = await boot(*_fault("child"))
    (child,) = psutil.Process(engine.process.pid).children()
    engine.process.terminate()
    engine.process.wait(timeout=5)
    assert child.is_running()
    assert os.getpgid(child.pid) == engine.process.pid
    os.killpg(engine.process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_the_log_can_carry_secrets_escapes_and_markup(boot):
    engine = await boot(*_fault("log_secrets", "log_escape"), "--api-key", "not-real")
    assert "Bearer not-real" in engine.log
    assert "\x1b[31m" in engine.log
    assert "<script>" in engine.log


async def test_answers_can_carry_markup_loops_and_come_short(boot):
    plain = await boot()
    odd = await boot(*_fault("markup_text,short_answers:0.5"))
    looping = await boot(*_fault("loop_text"))
    whole, short = await plain.chat(), await odd.chat()
    assert "<script>" in short.text
    assert "\x1b]0;title\x07" in short.text
    assert short.usage["completion_tokens"] == pytest.approx(whole.usage["completion_tokens"] / 2, abs=1)
    looped = (await looping.chat()).text.split()
    assert looped[5:] == looped[:-5]
