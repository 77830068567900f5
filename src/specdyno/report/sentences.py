"""What every reason, finding and word means, for people: the only place where enum members become sentences.

Owns the wording of statements that hold for any study; `report.headlines` puts numbers in. A test fails where a member
has no sentence.
"""

from __future__ import annotations

from typing import NamedTuple

from specdyno.records.schema import FindingCode, Outcome, Severity
from specdyno.verdict.schema import Decision, GateStatus, Reason


class Advice(NamedTuple):
    """What a finding says, and what to do about it."""

    says: str
    do: str


FINDINGS: dict[FindingCode, Advice] = {
    FindingCode.SPECULATION_NOT_ACTIVE: Advice(
        "The engine generated tokens without drafting any: speculation was not active.",
        "Look for a failed draft load in the engine's log and check the method and the draft's path.",
    ),
    FindingCode.DRAFT_TOKENS_NOT_AS_ASKED: Advice(
        "The engine drafts another number of tokens than the plan asks for.",
        "Ask for a draft length that the draft and the engine support.",
    ),
    FindingCode.METHOD_NOT_AS_ASKED: Advice(
        "The engine resolved another drafting method than the plan names.",
        "Name the method that the draft was made for, or give its folder a path that the engine does not reinterpret.",
    ),
    FindingCode.BASELINE_SPECULATES: Advice(
        "The baseline itself speculates, so it is no baseline.",
        "Remove every speculative flag and variable from the engine's arguments and environment.",
    ),
    FindingCode.SETTINGS_DIFFER: Advice(
        "The arms differ in a setting that speculation does not change by itself.",
        "Make the setting equal in all arms, or name it under experiment.accept_differences if it is meant.",
    ),
    FindingCode.COUNTERS_UNREADABLE: Advice(
        "The engine's counters could not be read.",
        "Check that its metrics are switched on and reachable; acceptance cannot be claimed without them.",
    ),
    FindingCode.COUNTERS_RESET: Advice(
        "A counter went backwards inside a window: the engine or a part of it restarted.",
        "Look for a crash in the engine's log and measure the block again.",
    ),
    FindingCode.FOREIGN_TRAFFIC: Advice(
        "The engine served tokens that specdyno did not ask for.",
        "Take the engine out of every other client's reach while it is measured.",
    ),
    FindingCode.IDENTITY_BROKEN: Advice(
        "Counts that must agree by definition do not.",
        "Do not trust acceptance of this window; report the engine's version and its counters.",
    ),
    FindingCode.USAGE_MISSING: Advice(
        "The server sent no token counts with its answers.",
        "Switch usage reporting on; chunks are not tokens and cannot stand in for them.",
    ),
    FindingCode.USAGE_ODD: Advice(
        "The server's token counts contradict what was received.",
        "Compare a few answers with their counts before you rely on any rate per token.",
    ),
    FindingCode.REQUESTS_FAILED: Advice(
        "Requests failed.",
        "See the outcomes and the engine's log; a failed request counts as a job not done.",
    ),
    FindingCode.OUTPUT_LENGTH_DIFFERS: Advice(
        "Answers differ in length between the arms: a shorter answer is not a faster one.",
        "Compare the answers, the stop conditions and the sampling defaults of both arms.",
    ),
    FindingCode.FIRST_POSITION_EXTREME: Advice(
        "Acceptance at the first position is below 5 % or above 99.9 %.",
        "Low: the draft does not fit (tokenizer, chat template, checkpoint). High: looping text or a broken verifier.",
    ),
    FindingCode.LENGTH_EXTREME: Advice(
        "The mean accepted length is at its ceiling or its floor.",
        "Read some answers: repetition and synthetic acceptance look like this.",
    ),
    FindingCode.TOO_FEW_BLOCKS: Advice(
        "There are fewer than the four complete blocks that a promote needs.",
        "Finish the study with specdyno run --resume, or measure a plan whose looks reach four blocks or more.",
    ),
    FindingCode.BLOCKS_INCOMPLETE: Advice(
        "Blocks are incomplete and not scored.",
        "Find out why arms failed or were interrupted; more than a third of incomplete blocks forbids a promote.",
    ),
    FindingCode.BLOCK_VOID: Advice(
        "A block's arms lie too far apart in time to be compared; it is not scored.",
        "Run the block again in one go, or raise experiment.max_block_span if the host is steady for so long.",
    ),
    FindingCode.ENGINE_FAILED: Advice(
        "The engine did not start or died under load.",
        "Read the end of its log; a second failure of a candidate forbids its promotion.",
    ),
    FindingCode.CLIENT_AT_CEILING: Advice(
        "The measuring client itself was too busy to keep time.",
        "Give it a free core or another host, or lower the concurrency or the rate.",
    ),
    FindingCode.CLOCK_WENT_BACK: Advice(
        "The host's clock moved backwards.",
        "Measure again; check time synchronisation and virtual machine migration.",
    ),
    FindingCode.HOST_BUSY: Advice(
        "Other processes used the host's processors during a window.",
        "Stop them, or accept wider intervals.",
    ),
    FindingCode.A_A_BEYOND_SPREAD: Advice(
        "The baseline compared with itself differs by more than the spread between boots.",
        "Look for drift, heat or other load on the host: until then no difference on it can be trusted.",
    ),
    FindingCode.NO_FULL_OCCUPANCY: Advice(
        "The number of requests in flight never stayed at its target.",
        "Use a longer window or a lower concurrency.",
    ),
    FindingCode.WINDOW_SHORTENED: Advice(
        "A window asked for less than planned.",
        "See which requests failed; where a class was too small, use more prompts or a shorter window.",
    ),
    FindingCode.FORCED_LENGTH: Advice(
        "Answers were forced to a length, so this is not the traffic that will be served.",
        "Remove ignore_eos and minimum lengths from the request; such runs never promote.",
    ),
    FindingCode.SYNTHETIC_ACCEPTANCE: Advice(
        "The engine accepts drafts by rule and not by verification.",
        "Switch synthetic acceptance off; its speed is not the speed of right answers.",
    ),
    FindingCode.PROMPTS_DIFFER: Advice(
        "The arms of a block did not see the same prompts in the same order.",
        "Measure the block again; requests that differ cannot be paired.",
    ),
    FindingCode.SIMULATED_ENGINE: Advice(
        "The engine is simulated: this shows how specdyno works and nothing about a model or a machine.",
        "Use a real engine for a decision.",
    ),
    FindingCode.PREFIX_HITS_DIFFER: Advice(
        "The arms found different shares of their prompts in the prefix cache.",
        "Hidden-state methods compute the last matched block again; a larger gap means that the caches differ.",
    ),
    FindingCode.NOT_STEADY: Advice(
        "The token rate at the start of a window differs from the rest of it (MSER-5).",
        "Use a longer warm-up or a longer window; nothing was cut, and every arm is scored alike.",
    ),
    FindingCode.ORDER_DRIFT: Advice(
        "Boots later in a block run at another speed than earlier ones.",
        "Look for heat or a filling cache; order is balanced over blocks, so this widens the intervals only.",
    ),
    FindingCode.ENGINE_NOT_RUN_HERE: Advice(
        "specdyno's adapter for this engine follows its documentation and was never run against the engine itself.",
        "Compare the flags of the boots and the acceptance of a few answers with the engine's own log.",
    ),
    FindingCode.MEMORY_DIFFERS: Advice(
        "The engine's KV cache holds more than 5 % more, or fewer, tokens than its files and settings let expect.",
        "Look for other users of the device and for settings that change the cache; with less room, requests wait.",
    ),
    FindingCode.SATURATED: Advice(
        "Requests came faster than the engine finished them: the number in flight grew over the window.",
        "Times then depend on how long the window is. Offer a lower rate, or judge by goodput or the largest rate.",
    ),
    FindingCode.EDGE_NOT_FOUND: Advice(
        "A search for the largest rate met no edge, or windows too short to tell whether the queue grew.",
        "Such a boot bounds its rate on one side at most; a new study with wider rates or longer windows says more.",
    ),
    FindingCode.HISTORY_SUPPLIED: Advice(
        "Recorded tool calls or answers stand in a session's history where the engine gave none of use.",
        "Later turns see them in place of the engine's own. Many of them: the target does not fit these sessions.",
    ),
}

SEVERITIES: dict[Severity, str] = {
    Severity.NOTE: "Note: good to know; changes no decision.",
    Severity.DOUBT: "Doubt: keep it in mind with the verdict.",
    Severity.FORBIDS: "Forbids: no promote while it stands.",
}

REASONS: dict[Reason, str] = {
    Reason.GAIN_SHOWN: "at least the minimum gain is shown, and every guard held",
    Reason.SCOPED_GAIN_SHOWN: "at least the minimum gain is shown for a part of the traffic, not for the whole",
    Reason.GAIN_EXCLUDED: "a gain of the stated minimum is excluded",
    Reason.GUARD_BROKEN: "a guard is broken: something got worse beyond its margin",
    Reason.FAILED_TO_RUN: "the engine failed twice with it",
    Reason.FINDING_FORBIDS: "a finding forbids a promote",
    Reason.TOO_FEW_BLOCKS: "there are too few complete blocks",
    Reason.PRIMARY_UNDECIDED: "the minimum gain is neither shown nor excluded",
    Reason.GUARD_UNDECIDED: "the gain is shown, but a guard is neither met nor broken",
    Reason.NOT_MEASURED: "what it is judged by was not measured",
    Reason.NOT_PURSUED: "it is shown to stay more than 3 % below the best candidate, so it was not pursued",
}

DECISIONS: dict[Decision, str] = {
    Decision.PROMOTE: (
        "Turn it on for this objective, or for the classes that the verdict names: "
        "the minimum gain is shown and every guard held."
    ),
    Decision.HOLD: "Not decided: change nothing yet.",
    Decision.REJECT: "Leave it off for this objective: the gain is excluded, a guard is broken, or it failed to run.",
}

GATE_STATUSES: dict[GateStatus, str] = {
    GateStatus.MET: "met",
    GateStatus.MISSED: "missed",
    GateStatus.UNDECIDED: "undecided",
}

OUTCOMES: dict[Outcome, str] = {
    Outcome.FINISHED: "finished by themselves",
    Outcome.CUT_AT_LIMIT: "cut at their token limit",
    Outcome.TIMED_OUT: "timed out",
    Outcome.REFUSED: "refused (no connection)",
    Outcome.BROKEN_STREAM: "broken off",
    Outcome.HTTP_ERROR: "answered with an HTTP error",
}

GATES: dict[str, str] = {
    "primary": "Gain",
    "tpot": "Time per output token",
    "output_length": "Output length",
    "failed_requests": "Failed requests",
}

MEASURES: dict[str, str] = {
    "time_per_job": "time per job",
    "jobs_per_s": "jobs per second",
    "output_tokens_per_s": "output tokens per second",
    "goodput": "goodput, jobs per second within the service level",
    "sessions_per_h": "sessions per hour",
    "largest_rate": "largest rate within the service level",
    "output_tokens_per_job": "output tokens per job",
    "tpot": "time per output token",
    "ttft": "time to first token",
    "e2e": "time to last byte",
    "stall": "longest pause of a job, mean",
    "ttft_p95": "time to first token, 95th percentile",
    "ttft_p99": "time to first token, 99th percentile",
    "e2e_p95": "time to last byte, 95th percentile",
    "e2e_p99": "time to last byte, 99th percentile",
    "stall_p95": "longest pause of a job, 95th percentile",
    "stall_p99": "longest pause of a job, 99th percentile",
    "failed_share": "share of failed requests",
}

LATENCIES: dict[str, str] = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl": "gap between chunks",
    "e2el": "time to last byte",
}

STATISTICS: dict[str, str] = {"mean": "mean", "median": "median", "p95": "95th percentile", "p99": "99th percentile"}

QUALITY = {
    "not measured": "speed only: answers were not checked",
}

WORDS: tuple[tuple[str, str], ...] = (
    *((decision.value, meaning) for decision, meaning in DECISIONS.items()),
    ("baseline", "The engine with no speculative configuration at all, in its own process."),
    ("candidate", "Engine, method, draft and draft length together; here called by method and draft length."),
    ("draft tokens, K", "How many tokens a step proposes."),
    (
        "step",
        (
            "One verification by the target model for one request; it emits 1 to K + 1 tokens. "
            "A drafted step had at least one proposal."
        ),
    ),
    ("chunk", "One event of a streamed answer. It may carry no, one or many tokens, so it never stands for a token."),
    (
        "speed-up",
        (
            "Candidate against baseline, turned so that above 1 always means that speculation is faster. "
            "Paired by block; the interval is over blocks."
        ),
    ),
    ("gain", "The speed-up minus 1, in percent."),
    ("boot", "One life of one engine process. The boot is what is repeated, not the request."),
    (
        "block",
        "One boot of the baseline and one of each candidate, in random order, on the same host with the same prompts.",
    ),
    ("class", "A kind of traffic with its share of the requests."),
    ("load", "How requests arrive; in a closed loop, how many are in flight."),
    ("window", "One stretch of load within a boot: all classes mixed by their shares, or one class alone."),
    ("joint acceptance", "Share of the drafted steps that accepted at least this many tokens."),
    ("conditional acceptance", "Share accepted at a position where it was proposed and all before it were accepted."),
    (
        "corrected acceptance",
        (
            "Joint acceptance had every draft been long enough: the product of the conditional ones. "
            "It assumes that a draft's length does not depend on how it would fare."
        ),
    ),
    ("acceptance rate", "Accepted over drafted tokens. Comparable between equal K only."),
    ("mean accepted length", "1 + accepted tokens / drafted steps: counts the target's own token."),
    ("draft coverage", "Share of all decode steps that had a proposal."),
    ("tokens per step", "Generated tokens, without the first of each answer, over all decode steps, drafted or not."),
    (
        "step cost",
        (
            "Time of a step with speculation over time of a plain step at the same load. "
            "Here derived as tokens per step / speed-up, so it is no measurement of its own."
        ),
    ),
    ("TTFT", "Time to first token: from sending to the first chunk that carries text."),
    ("TPOT", "Time per output token after the first, by the server's token counts."),
    ("gap between chunks", "Time between two chunks of one answer: the time of a step, not of a token."),
    ("look", "A number of complete blocks at which the plan allows a decision. Nothing is decided in between."),
    ("scope", "Classes of the traffic for which alone a candidate is promoted, where the whole is not."),
    ("not pursued", "Held because another candidate is shown to be better; no further blocks were spent on it."),
    (
        "indifference set",
        "Promoted candidates shown to lie within 3 % of the best of them; the smallest K comes first.",
    ),
    ("guard", "Something that must not get worse by more than its margin, whatever the gain."),
    ("level", "How often an interval made like this one contains the true value. Looks and candidates share the risk."),
    ("exploratory", "Shown to explain and to choose what to measure next; decides nothing but a scope that is named."),
)


def measure(name: str) -> str:
    """A measure's name in words."""
    return MEASURES.get(name, name.replace("_", " "))


def gate(name: str) -> str:
    return GATES.get(name, name.replace("_", " ").capitalize())


def answers(quality: str) -> str:
    """What a verdict says about the answers, as a phrase."""
    return QUALITY.get(quality, f"answers: {quality}")
