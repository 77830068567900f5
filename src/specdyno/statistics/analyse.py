"""Records to analysis, whole: the one entry to the statistics. Pure, deterministic, and it decides nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from pydantic import ValidationError

from specdyno.errors import RecordError
from specdyno.plan.looks import cells
from specdyno.plan.schema import A_A, BASELINE, Arm, Plan, Role
from specdyno.records.audit import Audit, audit_records, last_complete_attempts
from specdyno.records.schema import BootRecord, Finding, StudyRecords, WindowKind
from specdyno.statistics.acceptance import delta_of, measure_curve
from specdyno.statistics.analysis import (
    Analysis,
    ArmSummary,
    BlockedCounts,
    Bound,
    Contrast,
    Curve,
    Drift,
    Level,
    NoiseBudget,
    OpenWindow,
    PhaseSummary,
)
from specdyno.statistics.arrivals import open_windows
from specdyno.statistics.blocks import Blocks, block_findings, sort_blocks
from specdyno.statistics.contrasts import LEVEL, a_a_finding, bounds_of_log_ratios, contrast, log_ratios
from specdyno.statistics.intervals import Estimate, Undefined, clopper_pearson, exponentiated, t_interval
from specdyno.statistics.ladder import ladders
from specdyno.statistics.measures import (
    CLASS_CUT,
    CLASS_WINDOW,
    LARGEST_RATE,
    MEASURES,
    OUTPUT_TOKENS_PER_JOB,
    THROUGHPUT,
    Measure,
)
from specdyno.statistics.noise import drift, drift_finding, noise_budget
from specdyno.statistics.phases import summarise_phases
from specdyno.statistics.service import Beyond, Carried, edge_finding, largest_rate
from specdyno.statistics.steadiness import steadiness_findings
from specdyno.statistics.summaries import summarise
from specdyno.statistics.windows import WindowView, joined, view_windows

Cell = tuple[str, str, str | None]  # arm, load, class name or None


def plan_of(records: StudyRecords) -> Plan:
    """The plan as the header keeps it; a RecordError where it is none."""
    try:
        return Plan.model_validate(records.header.plan)
    except ValidationError as error:
        raise RecordError(f"the study's header holds no valid plan: {error}") from error


def analyse(records: StudyRecords) -> Analysis:
    """All estimates of a study: curves, levels, contrasts, summaries and findings."""
    # A value that is not finite is caught where it would be used; on the way there it is nobody's error.
    with np.errstate(all="ignore"):
        return _analyse(records, plan_of(records))


def _analyse(records: StudyRecords, plan: Plan) -> Analysis:
    study = _Study(records, plan, sort_blocks(records, plan))
    audit = audit_records(records, plan)
    levels = study.levels()
    contrasts, drifts = study.contrasts(levels), study.drifts(levels)
    return Analysis(
        blocks=study.blocks.states,
        arms=tuple(arm.name for arm in plan.arms()),
        loads=tuple(load.name for load in plan.measured_loads),
        classes=study.classes,
        curves=study.curves(),
        levels=levels,
        contrasts=contrasts,
        summaries=study.summaries(),
        findings=_all_findings(
            records,
            audit,
            study.blocks,
            estimated=[
                *_a_a_findings(plan, contrasts),
                *study.steadiness(),
                *study.drift_findings(drifts),
                *study.edge_findings(),
            ],
        ),
        settings_differences=audit.settings_differences,
        outcome_counts=study.outcome_counts(),
        drifts=drifts,
        noise=study.noise(contrasts),
        paced_loads=tuple(load.name for load in plan.measured_loads if not load.closed),
        ladders=ladders(plan.loads, contrasts),
        phases=study.phases(),
        open_windows=study.open_windows(),
    )


def _all_findings(
    records: StudyRecords, audit: Audit, blocks: Blocks, *, estimated: Sequence[Finding]
) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys((*records.findings, *audit.findings, *block_findings(blocks), *estimated)))


def _a_a_findings(plan: Plan, contrasts: Sequence[Contrast]) -> list[Finding]:
    found = []
    for load, measure in dict.fromkeys((objective.load, objective.measure.value) for objective in plan.objectives):
        same = [c for c in contrasts if c.load == load and c.measure == measure and c.class_name is None]
        others = [c for c in same if c.candidate != A_A]
        found += [a_a_finding(c, others) for c in same if c.candidate == A_A]
    return [finding for finding in found if finding is not None]


@dataclass(frozen=True)
class _Study:
    """A study's scored windows by cell."""

    records: StudyRecords
    plan: Plan
    blocks: Blocks

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.plan.workload.classes)

    @cached_property
    def boots(self) -> tuple[BootRecord, ...]:
        """Boots of scored blocks; where no block is complete, every complete boot, so that something is shown."""
        if self.blocks.scored:
            return tuple(boot for boots in self.blocks.scored.values() for boot in boots.values())
        return tuple(last_complete_attempts(self.records.boots).values())

    @cached_property
    def views(self) -> dict[tuple[str, str, WindowKind, str | None], dict[int, WindowView]]:
        """(arm, load, kind, class) -> block -> window; a repeated window of a boot counts once, the last."""
        table: dict[tuple[str, str, WindowKind, str | None], dict[int, WindowView]] = {}
        for view in view_windows(self.records, self.boots):
            record = view.record
            view = replace(view, level=self.plan.service_level(record.load))  # noqa: PLW2901 - the plan knows it
            table.setdefault((view.boot.arm, record.load, record.kind, record.class_name), {})[view.boot.block] = view
        return table

    @cached_property
    def searches(self) -> dict[tuple[str, str], dict[int, list[WindowView]]]:
        """(arm, load) -> block -> the windows of a search for the largest rate."""
        table: dict[tuple[str, str], dict[int, list[WindowView]]] = {}
        for view in view_windows(self.records, self.boots):
            if view.record.kind is WindowKind.PROBE:
                known = replace(view, level=self.plan.service_level(view.record.load))
                table.setdefault((view.boot.arm, view.record.load), {}).setdefault(view.boot.block, []).append(known)
        return table

    def mixed(self, arm: str, load: str) -> dict[int, WindowView]:
        return self.views.get((arm, load, WindowKind.MIXED, None), {})

    def cells(self, arms: Sequence[Arm]) -> list[Cell]:
        return [
            (arm.name, load.name, name)
            for arm in arms
            for load in self.plan.measured_loads
            for name in (None, *self.plan.classes_at(load))
        ]

    def curves(self) -> tuple[Curve, ...]:
        candidates = [arm for arm in self.plan.arms() if arm.role is Role.CANDIDATE]
        asked = {arm.name: arm.draft_tokens for arm in candidates}
        return tuple(
            measure_curve(
                list(self.mixed(arm, load).values()),
                (arm, load, name),
                k=self._k_in_force(arm) or asked[arm],
                seed=self.plan.seed,
            )
            for arm, load, name in self.cells(candidates)
            if self.mixed(arm, load)
        )

    def _k_in_force(self, arm: str) -> int | None:
        reported = [boot.identity.draft_tokens for boot in self.boots if boot.arm == arm and boot.identity is not None]
        known = [k for k in reported if k is not None] or self._k_counted(arm)
        return max(known, default=None)

    def _k_counted(self, arm: str) -> list[int]:
        """K by the number of positions that the engine counts; empty where it counts none."""
        deltas = [delta_of(view) for load in self.plan.measured_loads for view in self.mixed(arm, load.name).values()]
        return [delta.draft_tokens_k for delta in deltas if delta is not None and delta.draft_tokens_k is not None]

    def levels(self) -> tuple[Level, ...]:
        levels = []
        for arm, load, name in self.cells(self.plan.arms()):
            mixed = self.mixed(arm, load)
            alone = self.views.get((arm, load, WindowKind.CLASS, name), {}) if name is not None else {}
            for measure in MEASURES.values():
                values = _values(measure, name, mixed=mixed, alone=alone)
                if name is None and (arm, load) in self.searches:
                    values = self._of_search(measure, arm, load)
                if values:
                    levels.append(self._level((arm, load, name), measure, values))
        return tuple(levels)

    def _of_search(self, measure: Measure, arm: str, load: str) -> dict[int, float | None]:
        """What the windows of a search give by block: the largest rate, and how long the answers were."""
        if measure.name == LARGEST_RATE:
            return self._largest_rates(arm, load)
        if measure.name != OUTPUT_TOKENS_PER_JOB:
            return {}
        return {block: measure.of(joined(probes)) for block, probes in self.searches[arm, load].items()}

    @cached_property
    def edges(self) -> dict[tuple[str, str], dict[int, Carried | Beyond | Undefined]]:
        """(arm, load) -> block -> what the search of that boot found."""
        return {
            cell: {block: largest_rate(probes, self.plan.load(cell[1])) for block, probes in sorted(found.items())}
            for cell, found in self.searches.items()
        }

    def _largest_rates(self, arm: str, load: str) -> dict[int, float | None]:
        """By block; None where the search of a boot found no edge."""
        found = self.edges.get((arm, load), {})
        return {block: one.rate if isinstance(one, Carried) else None for block, one in found.items()}

    def _bounds(self, cell: Cell, measure: Measure) -> tuple[Bound, ...]:
        """Between which rates each boot's largest rate lies; a side that its search did not find is None."""
        arm, load, _ = cell
        found = self.edges.get((arm, load), {}) if measure.name == LARGEST_RATE else {}
        return tuple(
            (block, one.low, one.high) if isinstance(one, Carried) else (block, one.above, one.below)
            for block, one in found.items()
            if not isinstance(one, Undefined)
        )

    def edge_findings(self) -> list[Finding]:
        found = (edge_finding(arm, self.plan.load(load), edges) for (arm, load), edges in self.edges.items())
        return [finding for finding in found if finding is not None]

    def phases(self) -> tuple[PhaseSummary, ...]:
        return tuple(
            summary
            for arm in self.plan.arms()
            for load in self.plan.measured_loads
            if load.sessions is not None
            for summary in summarise_phases(
                list(self.mixed(arm.name, load.name).values()),
                arm=arm.name,
                load=load.name,
                k=self._k_in_force(arm.name) or arm.draft_tokens if arm.role is Role.CANDIDATE else None,
                seed=self.plan.seed,
            )
        )

    def open_windows(self) -> tuple[OpenWindow, ...]:
        found: list[OpenWindow] = []
        for arm in self.plan.arms():
            for load in self.plan.measured_loads:
                steps = [view for views in self.searches.get((arm.name, load.name), {}).values() for view in views]
                views = [*self.mixed(arm.name, load.name).values(), *steps]
                found += open_windows(views, arm=arm.name, load=load)
        return tuple(found)

    def _level(self, cell: Cell, measure: Measure, values: dict[int, float | None]) -> Level:
        arm, load, name = cell
        known = tuple((block, v) for block, v in sorted(values.items()) if v is not None and math.isfinite(v))
        views = [*self.mixed(arm, load).values()]
        if (arm, load) in self.searches:
            views = [view for probes in self.searches.get((arm, load), {}).values() for view in probes]
        cut = [view if name is None else view.of_class(name) for view in views]
        # Whether a request failed is known of every one; all else is measured on those that were completed.
        requests = sum(len(v.rows) if measure.name == "failed_share" else int(v.done.sum()) for v in cut)
        if requests < measure.smallest_count:
            reason = f"{requests} completed requests; {measure.smallest_count} are needed"
            return Level(arm, load, name, measure.name, Undefined(reason, requests), ())
        if measure.name == "failed_share":
            value = clopper_pearson(sum(int((~view.done).sum()) for view in cut), sum(len(v.rows) for v in cut), LEVEL)
        else:
            value = _level_interval([v for _, v in known])
        bounds = self._bounds(cell, measure)
        beyond = sum(low is None or high is None for _, low, high in bounds)
        if beyond:
            # The mean over the boots that have an edge would leave out just those that lie beyond the range.
            value = Undefined(f"no edge among the rates searched in {beyond} of {len(values)} boots", len(known))
        return Level(arm, load, name, measure.name, value, known, bounds)

    def contrasts(self, levels: Sequence[Level]) -> tuple[Contrast, ...]:
        if not self.blocks.scored:
            return ()
        tables = {(level.arm, level.load, level.class_name, level.measure): level for level in levels}
        found = []
        for (arm, load, name, key), level in tables.items():
            baseline = tables.get((BASELINE, load, name, key))
            if arm == BASELINE or baseline is None or key == "failed_share":
                continue
            measure = MEASURES[key]
            ys = log_ratios(dict(level.by_block), dict(baseline.by_block), sign=measure.sign)
            bounds = bounds_of_log_ratios(level, baseline)
            decides = arm != A_A and self._decides(load, key, name)
            found.append(contrast(ys, bounds, measure=measure, cell=(arm, load, name), decides=decides))
        return tuple(found)

    def _decides(self, load: str, measure: str, class_name: str | None) -> bool:
        """Whether a gate rests on it: of the whole traffic, or of a class that may be promoted apart."""
        objectives = [
            objective
            for objective in self.plan.objectives
            if objective.load == load and (class_name is None or class_name in cells(self.plan, objective))
        ]
        guards = self.plan.guards
        gated = {objective.measure.value for objective in objectives}
        if guards.output_length is not None:
            gated.add("output_tokens_per_job")
        if guards.tpot is not None and gated & THROUGHPUT:
            gated.add("tpot")
        return bool(objectives) and measure in gated

    def summaries(self) -> tuple[ArmSummary, ...]:
        return tuple(
            summarise(list(self.mixed(arm, load).values()), arm=arm, load=load, class_name=name)
            for arm, load, name in self.cells(self.plan.arms())
            if self.mixed(arm, load)
        )

    def outcome_counts(self) -> tuple[BlockedCounts, ...]:
        return tuple(
            BlockedCounts(arm.name, load.name, block, requests=len(view.rows), failed=int((~view.done).sum()))
            for arm in self.plan.arms()
            for load in self.plan.measured_loads
            for block, view in sorted(self.mixed(arm.name, load.name).items())
        )

    @property
    def _decided(self) -> tuple[tuple[str, str], ...]:
        """(load, measure) of the objectives."""
        return tuple(dict.fromkeys((part.load, part.measure.value) for part in self.plan.objectives))

    def steadiness(self) -> list[Finding]:
        cells = [self.mixed(arm.name, load.name) for arm in self.plan.arms() for load in self.plan.measured_loads]
        return steadiness_findings(view for views in cells for _, view in sorted(views.items()))

    def drifts(self, levels: Sequence[Level]) -> tuple[Drift, ...]:
        if not self.blocks.scored:
            return ()
        places = {(boot.block, boot.arm): boot.position for boot in self.boots}
        return tuple(
            Drift(load, key, drift(_by_arm(levels, load, key), places, sign=MEASURES[key].sign))
            for load, key in self._decided
        )

    def drift_findings(self, drifts: Sequence[Drift]) -> list[Finding]:
        found = (drift_finding(one, len(self.plan.arms())) for one in drifts)
        return [finding for finding in found if finding is not None]

    def noise(self, contrasts: Sequence[Contrast]) -> tuple[NoiseBudget, ...]:
        budgets = []
        for one in contrasts:
            if one.class_name is None and one.candidate != A_A and (one.load, one.measure) in self._decided:
                mine, theirs = self.mixed(one.candidate, one.load), self.mixed(BASELINE, one.load)
                pairs = {block: (mine[block], theirs[block]) for block in mine.keys() & theirs.keys()}
                budgets.append(noise_budget(one.by_block, pairs, cell=(one.candidate, one.load, one.measure)))
        return tuple(budget for budget in budgets if budget is not None)


def _by_arm(levels: Sequence[Level], load: str, measure: str) -> dict[str, dict[int, float]]:
    return {
        level.arm: dict(level.by_block)
        for level in levels
        if (level.load, level.measure) == (load, measure) and level.class_name is None
    }


def _values(
    measure: Measure, name: str | None, *, mixed: dict[int, WindowView], alone: dict[int, WindowView]
) -> dict[int, float | None]:
    """A measure by block: of the mixed window, of one class's cut of it, or of that class's own window."""
    if name is None:
        return {block: measure.of(view) for block, view in mixed.items()}
    if measure.name in CLASS_CUT:
        return {block: CLASS_CUT[measure.name](view.of_class(name)) for block, view in mixed.items()}
    return {block: measure.of(view) for block, view in alone.items()} if measure.name in CLASS_WINDOW else {}


def _level_interval(values: Sequence[float]) -> Estimate:
    """Over the boots of scored blocks, on logs where all are positive (they are times and rates)."""
    if not values:
        return Undefined("not measured")
    if min(values) > 0:
        return exponentiated(t_interval([math.log(v) for v in values], LEVEL, method="t over blocks, on logs"))
    return t_interval(values, LEVEL)
