"""Each doubt is raised by the fault that deserves it, and by no healthy study."""

from dataclasses import replace

import numpy as np
import pytest
from tests.simulation.generator import DEFAULT_PLAN, Truth, make_study

from specdyno.plan.schema import Plan
from specdyno.records import window_audit
from specdyno.records.audit import audit_records
from specdyno.records.confounds import CONSEQUENCES, differences, matches
from specdyno.records.deltas import Family
from specdyno.records.schema import FindingCode, Outcome, Series, Severity, WindowKind

HEALTHY = make_study(blocks=2)


def audit(records):
    return audit_records(records, Plan.model_validate(records.header.plan)).findings


def codes(records):
    return {(finding.code, finding.severity) for finding in audit(records)}


def with_requests(**columns):
    return replace(HEALTHY, requests=replace(HEALTHY.requests, **columns))


def with_windows(change):
    return replace(HEALTHY, windows=tuple(change(window) for window in HEALTHY.windows))


def with_identity(arm, **facts):
    boots = tuple(
        replace(boot, identity=replace(boot.identity, **facts)) if boot.arm == arm else boot for boot in HEALTHY.boots
    )
    return replace(HEALTHY, boots=boots)


def with_counter(name, change):
    """`change(value, place)` on one family, place 0 before a window and 1 after."""

    def changed(window):
        samples = [
            replace(
                sample,
                series=tuple(replace(s, value=change(s.value, place)) if s.name == name else s for s in sample.series),
            )
            for place, sample in enumerate((window.before, window.after))
        ]
        return replace(window, before=samples[0], after=samples[1])

    return with_windows(changed)


def test_a_healthy_study_raises_nothing_but_that_it_is_simulated():
    assert codes(HEALTHY) == {(FindingCode.SIMULATED_ENGINE, Severity.NOTE)}


def test_speculation_that_the_engine_denies_is_not_active():
    found = audit(with_identity("eagle3-k3", speculation=False))
    assert [(f.code, f.severity, f.arm, f.place) for f in found[1:]] == [
        (FindingCode.SPECULATION_NOT_ACTIVE, Severity.FORBIDS, "eagle3-k3", "blocks 1, 2, eagle3-k3")
    ]


def test_no_draft_over_many_tokens_is_not_active_rather_than_zero_percent():
    records = make_study(blocks=1, truth=Truth(coverage={"ngram": 0.0}))
    found = {f.arm for f in audit(records) if f.code is FindingCode.SPECULATION_NOT_ACTIVE}
    assert found == {"ngram-k3"}


def test_a_candidate_that_nobody_can_see_drafting_forbids():
    records = make_study(blocks=1, truth=Truth(per_request=False, counters=False))
    assert (FindingCode.COUNTERS_UNREADABLE, Severity.FORBIDS) in codes(records)


@pytest.mark.parametrize(
    ("arm", "facts", "code"),
    [
        ("eagle3-k3", {"draft_tokens": 2}, FindingCode.DRAFT_TOKENS_NOT_AS_ASKED),
        ("eagle3-k3", {"method": "draft_model"}, FindingCode.METHOD_NOT_AS_ASKED),
        ("baseline", {"speculation": True}, FindingCode.BASELINE_SPECULATES),
        ("eagle3-k3", {"version": "2"}, FindingCode.SETTINGS_DIFFER),
        ("eagle3-k3", {"model": "org/other"}, FindingCode.SETTINGS_DIFFER),
    ],
)
def test_an_arm_that_is_not_what_was_asked_forbids(arm, facts, code):
    assert (code, Severity.FORBIDS) in codes(with_identity(arm, **facts))


def test_a_length_read_from_the_counters_serves_where_the_engine_is_silent():
    silent = with_identity("eagle3-k3", draft_tokens=None)
    assert codes(silent) == codes(HEALTHY)
    blind = replace(silent, windows=tuple(replace(w, before=None, after=None) for w in silent.windows))
    assert (FindingCode.DRAFT_TOKENS_NOT_AS_ASKED, Severity.DOUBT) in codes(blind)


@pytest.mark.parametrize("resolved", ["mtp", "gemma4_mtp"])
def test_another_name_for_the_same_method_is_no_doubt(resolved):
    plan = {
        **DEFAULT_PLAN,
        "candidates": [{"method": "gemma4_mtp", "draft": "org/assistant", "draft_tokens": [2]}],
    }
    records = make_study(plan, blocks=1)
    boots = tuple(
        replace(b, identity=replace(b.identity, method=resolved)) if b.arm != "baseline" else b for b in records.boots
    )
    assert FindingCode.METHOD_NOT_AS_ASKED not in {f.code for f in audit(replace(records, boots=boots))}


def test_consequences_of_speculation_are_shown_and_other_differences_forbid():
    truth = Truth(settings={"eagle3-k3": {"async_scheduling": False, "max_num_seqs": 48}})
    records = make_study(blocks=2, truth=truth)
    result = audit_records(records, Plan.model_validate(records.header.plan))
    assert ("async_scheduling", "eagle3-k3", "not reported", "false", True) in result.settings_differences
    assert ("max_num_seqs", "eagle3-k3", "32", "48", False) in result.settings_differences
    found = [f for f in result.findings if f.code is FindingCode.SETTINGS_DIFFER]
    assert [(f.severity, f.place) for f in found] == [(Severity.FORBIDS, "max_num_seqs, eagle3-k3")]


@pytest.mark.parametrize("name", ["max-num-seqs", "max_num_seqs", "max_num_*"])
def test_a_difference_that_the_plan_accepts_by_name_is_a_note(name):
    plan = {**DEFAULT_PLAN, "experiment": {"accept_differences": [name]}}
    records = make_study(plan, blocks=1, truth=Truth(settings={"eagle3-k3": {"max_num_seqs": 48}}))
    assert (FindingCode.SETTINGS_DIFFER, Severity.NOTE) in codes(records)
    assert (FindingCode.SETTINGS_DIFFER, Severity.FORBIDS) not in codes(records)


def test_a_setting_that_one_arm_does_not_report_is_a_doubt():
    records = make_study(blocks=1, truth=Truth(settings={"ngram-k3": {"attention_backend": "x"}}))
    assert (FindingCode.SETTINGS_DIFFER, Severity.DOUBT) in codes(records)


@pytest.mark.parametrize(
    "name",
    ["scheduler_config.async_scheduling", "cache_config.num_gpu_blocks", "compilation_config.cudagraph_capture_sizes"],
)
def test_consequences_are_known_by_their_last_part(name):
    assert matches(name, CONSEQUENCES)


@pytest.mark.parametrize("name", ["dtype", "max_num_seqs", "enforce_eager", "cudagraph_mode", "enable_prefix_caching"])
def test_settings_of_the_service_are_no_consequences(name):
    assert not matches(name, CONSEQUENCES)


def test_addresses_of_objects_are_no_difference():
    sides = [{"hook": f"<function f at 0x7f{n}>", "k": 1.0} for n in range(2)]
    assert differences(sides[0], {**sides[1], "k": 1}, arm="x") == []


def test_tokens_that_this_client_never_asked_for_are_foreign():
    extra = with_counter(Family.GENERATION_TOKENS.value, lambda value, place: value + 200 * place)
    assert (FindingCode.FOREIGN_TRAFFIC, Severity.FORBIDS) in codes(extra)


def test_failed_requests_may_have_cost_tokens_without_being_foreign():
    records = make_study(blocks=2, truth=Truth(failed_share={"ngram-k3": 0.3}))
    found = {f.code for f in audit(records)}
    assert FindingCode.REQUESTS_FAILED in found
    assert FindingCode.FOREIGN_TRAFFIC not in found


def test_failed_requests_are_told_by_class_outcome_and_what_the_engine_said():
    records = make_study(blocks=1)
    requests, (window, *_) = records.requests, [w for w in records.windows if w.kind is WindowKind.MIXED]
    rows = np.flatnonzero(requests.window_id == window.id)
    chosen = rows[requests.class_code[rows] == requests.class_code[rows[0]]][:2]
    outcomes, told = requests.outcome_code.copy(), np.full(len(requests), -1)
    outcomes[chosen], told[chosen] = list(Outcome).index(Outcome.HTTP_ERROR), 0
    said = 'HTTP 400: {"error": {"message": "roles must alternate\nuser and assistant", "code": 400}}'
    broken = replace(records, requests=replace(requests, outcome_code=outcomes, errors=(said,), error_code=told))
    found = [f.detail for f in audit(broken) if f.code is FindingCode.REQUESTS_FAILED]
    name = requests.class_names[requests.class_code[rows[0]]]
    assert found == [
        f"2 of {len(rows)} failed (class {name}: 2 http error, HTTP 400: roles must alternate user and assistant)"
    ]


def test_tokens_that_the_server_never_counted_break_an_identity():
    less = with_counter(Family.GENERATION_TOKENS.value, lambda value, place: value - 200 * place if value else value)
    assert (FindingCode.IDENTITY_BROKEN, Severity.DOUBT) in codes(less)


def test_counters_that_start_anew_forbid():
    reset = with_windows(lambda w: replace(w, after=replace(w.after, process_start=99.0)))
    assert (FindingCode.COUNTERS_RESET, Severity.FORBIDS) in codes(reset)


def test_an_unreadable_counter_is_a_doubt_while_answers_carry_the_acceptance():
    broken = with_counter(Family.SPEC_ACCEPTED_TOKENS.value, lambda value, place: None if place else value)
    assert (FindingCode.COUNTERS_UNREADABLE, Severity.DOUBT) in codes(broken)
    requests = replace(
        broken.requests, **{n: np.full(len(broken.requests), np.nan) for n in ("spec_steps", "spec_drafted")}
    )
    assert (FindingCode.COUNTERS_UNREADABLE, Severity.FORBIDS) in codes(replace(broken, requests=requests))


def test_decode_steps_that_do_not_add_up_break_an_identity():
    fewer = with_counter(Family.DECODE_STEPS.value, lambda value, place: value * 0.5)
    assert (FindingCode.IDENTITY_BROKEN, Severity.DOUBT) in codes(fewer)


def test_no_counters_is_a_note_since_others_traffic_goes_unseen():
    assert (FindingCode.COUNTERS_UNREADABLE, Severity.NOTE) in codes(
        with_windows(lambda w: replace(w, before=None, after=None))
    )


def test_scrapes_without_any_counter_are_no_counters_rather_than_zero_traffic():
    def emptied(window):
        return replace(window, before=replace(window.before, series=()), after=replace(window.after, series=()))

    assert (FindingCode.COUNTERS_UNREADABLE, Severity.NOTE) in codes(with_windows(emptied))


@pytest.mark.parametrize(
    ("columns", "code", "severity"),
    [
        ({"tokens": HEALTHY.requests.tokens * np.nan}, FindingCode.USAGE_MISSING, Severity.DOUBT),
        ({"tokens": HEALTHY.requests.tokens + 500}, FindingCode.USAGE_ODD, Severity.DOUBT),
        ({"ended_ns": HEALTHY.requests.sent_ns - 5}, FindingCode.CLOCK_WENT_BACK, Severity.FORBIDS),
        ({"spec_accepted": HEALTHY.requests.spec_accepted + 7}, FindingCode.IDENTITY_BROKEN, Severity.DOUBT),
        (
            {"prompt_code": np.arange(len(HEALTHY.requests))},
            FindingCode.PROMPTS_DIFFER,
            Severity.FORBIDS,
        ),
        (
            {"outcome_code": np.full(len(HEALTHY.requests), list(Outcome).index(Outcome.REFUSED), np.int8)},
            FindingCode.REQUESTS_FAILED,
            Severity.DOUBT,
        ),
    ],
)
def test_requests_that_cannot_be_right(columns, code, severity):
    assert (code, severity) in codes(with_requests(**columns))


@pytest.mark.parametrize(
    ("change", "code", "severity"),
    [
        ({"client_lag_max_ns": 200_000_000}, FindingCode.CLIENT_AT_CEILING, Severity.DOUBT),
        ({"client_lag_max_ns": 2_000_000_000}, FindingCode.CLIENT_AT_CEILING, Severity.FORBIDS),
        ({"host_busy": 0.3}, FindingCode.HOST_BUSY, Severity.DOUBT),
        ({"planned": 500}, FindingCode.WINDOW_SHORTENED, Severity.DOUBT),
        ({"concurrency": 30}, FindingCode.NO_FULL_OCCUPANCY, Severity.DOUBT),
        ({"ended_ns": 1}, FindingCode.CLOCK_WENT_BACK, Severity.FORBIDS),
    ],
)
def test_windows_that_cannot_be_trusted(change, code, severity):
    assert (code, severity) in codes(with_windows(lambda w: replace(w, **change)))


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ((0.01,), {(FindingCode.FIRST_POSITION_EXTREME, Severity.DOUBT)}),
        (
            (0.0,),
            {(FindingCode.FIRST_POSITION_EXTREME, Severity.DOUBT), (FindingCode.LENGTH_EXTREME, Severity.DOUBT)},
        ),
        (
            (1.0,),
            {(FindingCode.FIRST_POSITION_EXTREME, Severity.DOUBT), (FindingCode.LENGTH_EXTREME, Severity.FORBIDS)},
        ),
        ((0.6,), set()),
    ],
)
@pytest.mark.parametrize("per_request", [True, False])
def test_acceptance_too_bad_or_too_good_to_be_true(rates, expected, per_request):
    truth = Truth(acceptance={"code": rates, "chat": rates}, per_request=per_request)
    records = make_study(blocks=2, truth=truth)
    assert {pair for pair in codes(records) if "extreme" in pair[0]} == expected


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        ({"workload": {"sampling": {"temperature": 0, "extra_body": {"ignore_eos": True}}}}, FindingCode.FORCED_LENGTH),
        ({"workload": {"sampling": {"temperature": 0, "extra_body": {"min_tokens": 9}}}}, FindingCode.FORCED_LENGTH),
        ({"engine": {"kind": "llamacpp", "args": {"ignore-eos": True}}}, FindingCode.FORCED_LENGTH),
        ({"engine": {"kind": "llamacpp", "args": {"spec-synth-rates": "1"}}}, FindingCode.SYNTHETIC_ACCEPTANCE),
        (
            {
                "candidates": [
                    {"method": "ngram", "draft_tokens": [3], "options": {"rejection_sample_method": "synthetic"}}
                ]
            },
            FindingCode.SYNTHETIC_ACCEPTANCE,
        ),
    ],
)
def test_plans_whose_text_is_not_the_traffic_forbid(plan, code):
    if "workload" in plan:
        plan = {"workload": {**DEFAULT_PLAN["workload"], **plan["workload"]}}
    assert (code, Severity.FORBIDS) in codes(make_study({**DEFAULT_PLAN, **plan}, blocks=1))


def test_an_end_of_text_left_alone_is_not_forced():
    plan = {**DEFAULT_PLAN, "workload": {**DEFAULT_PLAN["workload"]}}
    plan["workload"]["sampling"] = {"temperature": 0.0, "extra_body": {"ignore_eos": False, "min_tokens": 0}}
    assert FindingCode.FORCED_LENGTH not in {f.code for f in audit(make_study(plan, blocks=1))}


def test_boots_of_an_unknown_arm_are_named_and_not_read():
    boots = (*HEALTHY.boots, replace(HEALTHY.boots[0], id=999, arm="somebody"))
    found = audit(replace(HEALTHY, boots=boots))
    assert [f.detail for f in found if f.code is FindingCode.IDENTITY_BROKEN] == [
        "boots of arms that the plan does not name: somebody"
    ]


def test_warm_up_is_not_audited():
    def only_warm_up(window):
        return replace(window, host_busy=0.9) if window.kind is WindowKind.WARM_UP else window

    assert codes(with_windows(only_warm_up)) == codes(HEALTHY)


def test_the_tests_change_series_that_exist():
    names = {series.name for window in HEALTHY.windows for series in window.after.series}
    assert isinstance(HEALTHY.windows[0].after.series[0], Series)
    assert {Family.GENERATION_TOKENS.value, Family.DECODE_STEPS.value, Family.SPEC_ACCEPTED_TOKENS.value} <= names


def test_steps_without_an_accepted_count_are_no_broken_identity():
    """SGLang counts verifications and no accepted tokens; acceptance comes with its answers."""

    def without_accepted(window):
        both = (
            replace(
                sample,
                series=tuple(s for s in sample.series if not s.name.startswith("spec_accepted")),
            )
            for sample in (window.before, window.after)
        )
        return replace(window, **dict(zip(("before", "after"), both, strict=True)))

    assert codes(with_windows(without_accepted)) == codes(HEALTHY)


def test_an_engine_that_was_never_run_here_is_named():
    plan = Plan.model_validate({**HEALTHY.header.plan, "engine": {"kind": "sglang"}})
    found = [f for f in audit_records(HEALTHY, plan).findings if f.code is FindingCode.ENGINE_NOT_RUN_HERE]
    assert [(f.severity, f.detail) for f in found] == [(Severity.NOTE, "written from SGLang 0.5.23")]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ('HTTP 400: {"error": {"message": "bad roles; messages = [{\\"content\\": \\"my secret\\"}]"}}', "bad roles"),
        ('HTTP 400: {"object": "error", "message": "[{\'loc\': (1,), \'input\': \'my secret\'}]"}', "HTTP 400"),
        ('HTTP 400: {"message": "the text \'this is my secret, all of my long prompt\' is bad"}', "is bad"),
        ('HTTP 422: {"detail": [{"input": "my secret"}]}', "HTTP 422"),
    ],
)
def test_what_an_engine_repeats_of_a_request_reaches_no_finding(error, told):
    said = window_audit._short(error)
    assert told in said
    assert "secret" not in said
