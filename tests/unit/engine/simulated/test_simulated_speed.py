"""Speed follows the truth: steps in time, acceptance by position, and the speed-up that comes of both."""

import asyncio
import json
import math
import time

import pytest

from specdyno.engine.simulated.truth import read_truth

KNOWN = {
    "acceptance": [0.7, 0.5, 0.4],
    "step_cost": [1.1, 1.2, 1.3],
    "load_cost": 0.05,
    "batch_cost": 0.1,
    "step_ms": 20,
}
TRUTH = read_truth(json.dumps(KNOWN))
WINDOW_S = 0.9


async def _measure(engine, running: int) -> dict[str, float]:
    """What the counters gained per second while exactly so many requests ran."""
    tasks = [
        asyncio.create_task(engine.chat(f"prompt {number}", ignore_eos=True, max_tokens=8000))
        for number in range(running)
    ]
    before = await engine.until(lambda counted: counted["vllm:time_to_first_token_seconds_count"] == running)
    started = time.monotonic()
    await asyncio.sleep(WINDOW_S)
    after = await engine.counters()
    took_s = time.monotonic() - started
    assert after["vllm:num_requests_running"] == running
    for task in tasks:
        task.cancel()
    gained = {name: (value - before[name]) for name, value in after.items() if "vllm" in str(name)}
    return {name: value / took_s for name, value in gained.items()}


@pytest.mark.parametrize(("running", "scale"), [(1, 0.1), (8, 0.4)])
async def test_speed_follows_the_known_truth(boot, eagle3, running, scale):
    plain = await _measure(await boot(scale=scale, **KNOWN), running)
    drafting = await _measure(await boot(spec=eagle3, scale=scale, **KNOWN), running)
    steps = "vllm:inter_token_latency_seconds_count"
    expected_plain = running / (TRUTH.step_s(running) * scale)
    expected_drafting = running / (TRUTH.step_s(running, drafted_share=1.0, draft_tokens=3) * scale)
    assert plain[steps] == pytest.approx(expected_plain, rel=0.06)
    assert drafting[steps] == pytest.approx(expected_drafting, rel=0.06)

    drafts = drafting["vllm:spec_decode_num_drafts_total"]
    for place, joint in enumerate((0.7, 0.35, 0.14)):
        share = drafting["vllm:spec_decode_num_accepted_tokens_per_pos_total", str(place)] / drafts
        assert share == pytest.approx(joint, abs=4 * math.sqrt(joint * (1 - joint) / (drafts * WINDOW_S)))

    tokens = "vllm:generation_tokens_total"
    speed_up = drafting[tokens] / plain[tokens]
    assert speed_up == pytest.approx(TRUTH.speed_up("*", 3, running=running), rel=0.12)
    assert (speed_up > 1.3) == (running == 1)  # the same drafts pay alone and not in company


async def test_time_per_job_follows_the_truth_at_concurrency_one(boot):
    engine = await boot(scale=0.1, output_tokens=101, output_spread=0.0, prefill_ms_per_token=10.0)
    await engine.chat("warm")
    started = time.monotonic()
    answered = await engine.chat("x" * 380)
    took_s = time.monotonic() - started
    prefill_s = answered.usage["prompt_tokens"] * 0.010
    assert took_s == pytest.approx(0.1 * (prefill_s + 101 * 0.020), rel=0.15)
