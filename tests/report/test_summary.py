"""What the page says first, from records made by hand."""

from dataclasses import replace

import numpy as np
import pytest

from daes.report.content import Command, WarningBox
from daes.report.features import ColumnSummary
from daes.report.run_record import RunRecord
from daes.report.summary import findings, next_commands, summary, warnings

GOOD = RunRecord(
    "a run",
    folder="runs/one",
    metrics={"window_auc": 0.73, "window_normalized_entropy": 0.9, "window_calibration": 1.004},
    rows=1_000_000,
    batches=7813,
    window=100_000,
    config={"training": {"batch_size": 128}, "data": {"what": "clicks.parquet"}},
    schema={"label": "click"},
)


def said(run, columns=()):
    return " ".join(findings(run, columns))


def warned(run, columns=()):
    return " ".join(warnings(run, columns))


def with_metrics(**metrics):
    return replace(GOOD, metrics={**GOOD.metrics, **{f"window_{name}": value for name, value in metrics.items()}})


def test_a_good_run_is_told_in_sentences_and_without_a_warning():
    text = said(GOOD)
    assert "the higher score 73.0 % of the time over the last 100k rows (AUC 0.7300; guessing gives 50 %)" in text
    assert "LogLoss is 10.0 % lower than that of always predicting the click rate." in text
    assert "It predicts as many clicks as there are." in text
    assert warned(GOOD) == ""
    assert not any(isinstance(block, WarningBox) for block in summary(GOOD, []))


@pytest.mark.parametrize(
    ("calibration", "told"), [(1.53, "predicts 53 % too many clicks"), (0.8, "predicts 20 % too few clicks")]
)
def test_too_many_or_too_few_clicks_are_told_and_warned_of(calibration, told):
    run = with_metrics(calibration=calibration)
    assert f"It {told}." in said(run)
    assert f"The model {told}: rank by its scores, but do not use them as probabilities." in warned(run)


def test_few_clicks_may_be_off_by_chance():
    few = replace(with_metrics(calibration=0.8), window=1_000, click_rate=np.full(6, 0.09))  # 90 clicks, 0.21 by chance
    assert "It predicts 20 % too few clicks, which may be chance." in said(few)
    assert warned(few) == ""
    more = replace(few, click_rate=np.full(6, 0.2))
    assert "It predicts 20 % too few clicks." in said(more)
    assert "do not use them as probabilities" in warned(more)


def test_worse_than_no_model():
    run = with_metrics(normalized_entropy=1.2)
    assert "LogLoss is 20.0 % higher than that of always predicting the click rate." in said(run)
    assert "do not use them yet" in warned(run)


def test_few_steps_are_warned_of_and_the_next_command_takes_more():
    run = replace(GOOD, rows=137_000, batches=23, config={**GOOD.config, "training": {"batch_size": 8192}})
    assert "The model has taken only 23 steps: with smaller batches or more rows it learns more." in warned(run)
    first = next_commands(run)[0]
    assert isinstance(first, Command)
    assert first.command == "daes train clicks.parquet --label click --batch-size 32 --out runs/one-2"
    assert "more steps" not in str(next_commands(GOOD))
    smallest = replace(GOOD, rows=450, batches=75, config={**GOOD.config, "training": {"batch_size": 8}})
    assert "The model has taken only 75 steps: with more rows it learns more." in warned(smallest)
    assert "more steps" not in str(next_commands(smallest))


def test_the_command_for_more_steps_reads_the_same_columns():
    def command(**given):
        config = {**GOOD.config, "training": {"batch_size": 8192}, "options": given}
        return next_commands(replace(GOOD, rows=137_000, batches=17, config=config))[0].command

    end = "--batch-size 32 --out runs/one-2"
    found = command(exclude=["leak", "a,b"], time="when", weight=None, no_header=False, label_map=["yes=1", "no=0"])
    pairs = "--label-map yes=1 --label-map no=0"
    assert found == f"daes train clicks.parquet --label click --time when --exclude 'leak,\"a,b\"' {pairs} {end}"
    found = command(no_header=True, column_names=["x", "click"], separator="\t", limit=5000, exclude=[])
    assert (
        found
        == f"daes train clicks.parquet --label click --limit 5000 --separator '\t' --no-header --names x,click {end}"
    )
    assert command(schema="columns.json") == f"daes train clicks.parquet --schema columns.json {end}"


def test_commands_name_the_run_and_quote_its_path():
    commands = [block.command for block in next_commands(replace(GOOD, folder="my runs/one"))]
    assert commands == [
        "daes predict 'my runs/one' rows.parquet --out scores.parquet",
        "daes train rows.parquet --from 'my runs/one' --out 'my runs/one-next'",
    ]


def test_the_trend_of_the_second_half():
    rows = np.arange(100_000.0, 1_000_001, 100_000)

    def trend(last):
        auc = np.where(rows <= 500_000, 0.70, last)
        return said(replace(GOOD, history={"rows": rows, "window_auc": auc}))

    assert "it was still getting better: AUC went from 0.7000 to 0.7200" in trend(0.72)
    assert "it got worse: AUC went from 0.7000 to 0.6800" in trend(0.68)
    assert "it stayed as good as it was" in trend(0.701)


def test_a_change_within_the_errors_of_both_windows_may_be_chance():
    rows = np.arange(1_000.0, 6_001, 1_000)

    def trend(last, rate):
        auc = np.where(rows <= 3_000, 0.766, last)
        run = replace(GOOD, rows=6_000, window=1_000, click_rate=np.full(6, rate))
        return said(replace(run, history={"rows": rows, "window_auc": auc}))

    # Hanley and McNeil: 160 clicks and 840 others have errors of 0.023, 500 and 500 of 0.015
    assert "AUC went from 0.7660 to 0.7200, which may be chance." in trend(0.72, 0.16)
    assert "it got worse: AUC went from 0.7660 to 0.7200." in trend(0.72, 0.5)


def test_columns_that_matter_and_that_drift_are_named():
    columns = [
        ColumnSummary("city", "categorical", rise=0.02, error=0.001),
        ColumnSummary("price", "numerical", rise=0.01, error=0.001, drift=0.4),
        ColumnSummary("age", "numerical", rise=0.001, error=0.001, drift=0.01),
    ]
    text = said(GOOD, columns)
    assert "It relies most on city and price." in text
    assert "Without the other column it would predict as well." in text
    assert "1 of 2 numerical columns drifted: price." in text
    assert "No numerical column drifted much." in said(GOOD, columns[2:])


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (ColumnSummary("void", "numerical", missing=1.0), "Without any value: void."),
        (ColumnSummary("thin", "numerical", missing=0.7), "More than half of the values are missing in thin."),
        (ColumnSummary("same", "categorical", distinct=1.0), "With a single value: same."),
        (ColumnSummary("user", "categorical", fresh=0.9), "Most rows have a value of their own in user"),
    ],
)
def test_columns_that_cannot_help_are_warned_of(column, told):
    assert told in warned(GOOD, [column])


def test_ids_that_recur_little_and_matter_are_not_warned_of():
    assert warned(GOOD, [ColumnSummary("user", "categorical", fresh=0.9, rise=0.02, error=0.001)]) == ""


def test_full_tables_bad_batches_and_undefined_metrics_are_warned_of():
    assert "Most values of user share their row of the table with others" in warned(
        GOOD, [ColumnSummary("user", "categorical", shared=0.9), ColumnSummary("city", "categorical", shared=0.1)]
    )
    assert "1 batch could not be learned from." in warned(replace(GOOD, bad_batches=((0, "nan"),)))
    assert "2 batches could not" in warned(replace(GOOD, bad_batches=((0, "nan"), (5, "nan"))))
    assert "3 rows could not be read and were left out." in warned(replace(GOOD, bad_rows=(3, ("row 5: price",))))
    assert "auc is not defined: no click." in warned(replace(GOOD, undefined={"auc": "no click"}))
    assert "a column may leak the label, or the rows be sorted by it." in warned(with_metrics(auc=0.995))


def test_a_run_without_metrics_says_so():
    assert summary(RunRecord("a run"), [])[0].notes == ["No row with a label was scored."]
