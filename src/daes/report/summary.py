"""A run in sentences: how good the model is, what to look out for, what to do next."""

from collections.abc import Iterator, Sequence
from math import hypot, isfinite
from shlex import join, quote

import numpy as np

from daes.formatting import compact, count, counted, fixed, percent
from daes.report.content import Block, Command, Notes, WarningBox
from daes.report.features import ColumnSummary
from daes.report.run_record import RunRecord
from daes.training.config import FEW_STEPS, suggest_more_steps

_OFF = 0.1
_SHIFT = 0.25
_NAMED = 3
_SMALL = 0.003
_ERRORS = 2
"""Standard errors within which a difference may be chance."""
_DATA_OPTIONS = (
    *("numerical", "categorical", "time", "weight", "exclude", "limit", "format", "separator", "decimal", "missing"),
    *("no_header", "column_names", "no_quotes", "label_map", "bad_rows"),
)
"""The options of `daes train`, as config.json names them, that say what is read, besides the label and the schema."""


def summary(run: RunRecord, columns: Sequence[ColumnSummary]) -> list[Block]:
    """Findings, warnings, and next commands."""
    found: list[Block] = [Notes(list(findings(run, columns)) or ["No row with a label was scored."])]
    warned = list(warnings(run, columns))
    if warned:
        found.append(WarningBox(warned))
    return [*found, *next_commands(run)]


def findings(run: RunRecord, columns: Sequence[ColumnSummary]) -> Iterator[str]:
    """How well the model predicts, and from which columns."""
    where = f"over the last {compact(run.window)} rows" if run.windowed else "over all rows"
    auc = _recent(run, "auc")
    if isfinite(auc):
        yield (
            f"Of a click and a row without one, this model gives the click the higher score {percent(auc)} of the time "
            f"{where} (AUC {fixed(auc)}; guessing gives 50 %)."
        )
    entropy = _recent(run, "normalized_entropy")
    if isfinite(entropy):
        side = "lower" if entropy < 1 else "higher"
        yield f"Its LogLoss is {percent(abs(1 - entropy))} {side} than that of always predicting the click rate."
    calibration = _recent(run, "calibration")
    if isfinite(calibration):
        chance = ", which may be chance" if 0.01 <= abs(calibration - 1) < _calibration_by_chance(run) else ""
        yield f"It {predicted_clicks(calibration)}{chance}."
    yield from _trend(run)
    yield from _reliance(columns)
    yield from _drift(columns)


def predicted_clicks(calibration: float) -> str:
    """How many clicks the model predicts, in a few words.

    >>> predicted_clicks(1.53), predicted_clicks(0.8), predicted_clicks(1.004)
    ('predicts 53 % too many clicks', 'predicts 20 % too few clicks', 'predicts as many clicks as there are')
    """
    if abs(calibration - 1) < 0.01:
        return "predicts as many clicks as there are"
    return f"predicts {percent(abs(calibration - 1), 0)} too {'many' if calibration > 1 else 'few'} clicks"


def _trend(run: RunRecord) -> Iterator[str]:
    rows, auc = run.history.get("rows"), run.history.get("window_auc")
    if rows is None or auc is None or not run.window or len(rows) < 4 or rows[-1] < 2 * run.window:
        return
    half = int(np.searchsorted(rows, rows[-1] / 2))
    before, after = float(auc[half]), float(auc[-1])
    if not (isfinite(before) and isfinite(after)):
        return
    change, went = after - before, f"AUC went from {fixed(before)} to {fixed(after)}"
    if abs(change) < _SMALL:
        yield "Over the second half of the stream it stayed as good as it was."
    elif abs(change) < _ERRORS * hypot(*(_auc_error(run, value) for value in (before, after))):
        yield f"Over the second half of the stream {went}, which may be chance."
    else:
        how = "was still getting better" if change > 0 else "got worse"
        yield f"Over the second half of the stream it {how}: {went}."


def _auc_error(run: RunRecord, auc: float) -> float:
    """The standard error of an AUC over the last rows by Hanley and McNeil; 0 if the click rate was not recorded."""
    clicks, others = _clicks_and_others(run)
    if not (clicks >= 1 and others >= 1):
        return 0.0
    two_clicks, two_others = auc / (2 - auc) - auc**2, 2 * auc**2 / (1 + auc) - auc**2
    variance = auc * (1 - auc) + (clicks - 1) * two_clicks + (others - 1) * two_others
    return float(np.sqrt(variance / (clicks * others)))


def _calibration_by_chance(run: RunRecord) -> float:
    """How far predictions without an error may be from the number of clicks, in parts of it; 0 if it is not known."""
    clicks, _ = _clicks_and_others(run)
    return _ERRORS / float(np.sqrt(clicks)) if clicks >= 1 else 0.0


def _clicks_and_others(run: RunRecord) -> tuple[float, float]:
    """About how many of the last rows are clicks, and how many are none; NaN if the click rate was not recorded."""
    rows = (run.window if run.windowed else run.rows) or 0
    rate = float(np.nanmean(run.click_rate)) if np.isfinite(run.click_rate).any() else float("nan")
    return rate * rows, (1 - rate) * rows


def _reliance(columns: Sequence[ColumnSummary]) -> Iterator[str]:
    known = [column for column in columns if isfinite(column.rise)]
    used = [column for column in known if column.matters]
    if used:
        yield f"It relies most on {_listed([column.name for column in used])}."
        idle = len(known) - len(used)
        if idle:
            others = "the other column" if idle == 1 else f"any one of {idle} other columns"
            yield f"Without {others} it would predict as well."


def _drift(columns: Sequence[ColumnSummary]) -> Iterator[str]:
    numerical = [column for column in columns if isfinite(column.drift)]
    shifted = sorted((column for column in numerical if column.drift > _SHIFT), key=lambda column: -column.drift)
    if shifted:
        names = _listed([column.name for column in shifted])
        yield f"{count(len(shifted))} of {counted(len(numerical), 'numerical column')} drifted: {names}."
    elif numerical:
        yield "No numerical column drifted much."


def warnings(run: RunRecord, columns: Sequence[ColumnSummary]) -> Iterator[str]:
    """Possible problems of the run or its data."""
    yield from (f"{name} is not defined: {reason}." for name, reason in run.undefined.items())
    if run.batches is not None and run.batches < FEW_STEPS:
        more = "more rows" if _smaller_batches(run) is None else "smaller batches or more rows"
        yield f"The model has taken only {counted(run.batches, 'step')}: with {more} it learns more."
    auc, entropy, calibration = (_recent(run, name) for name in ("auc", "normalized_entropy", "calibration"))
    if entropy >= 1:
        yield "Predictions are worse than the click rate alone: do not use them yet."
    elif abs(calibration - 1) > max(_OFF, _calibration_by_chance(run)):
        yield f"The model {predicted_clicks(calibration)}: rank by its scores, but do not use them as probabilities."
    if auc > 0.98:
        yield f"An AUC of {fixed(auc)} is suspiciously high: a column may leak the label, or the rows be sorted by it."
    if run.bad_batches:
        number = len(run.bad_batches)
        yield f"{count(number)} {'batch' if number == 1 else 'batches'} could not be learned from."
    if run.bad_rows[0]:
        were = "was" if run.bad_rows[0] == 1 else "were"
        yield f"{counted(run.bad_rows[0], 'row')} could not be read and {were} left out."
    problems = {
        "Without any value: {}.": [column.name for column in columns if column.missing == 1],
        "More than half of the values are missing in {}.": [c.name for c in columns if 0.5 < c.missing < 1],
        "With a single value: {}.": [column.name for column in columns if column.distinct == 1],
        "Most rows have a value of their own in {}: values that hardly recur cannot be learned (--exclude).": [
            column.name for column in columns if column.fresh > 0.5 and not column.matters
        ],
        "Most values of {} share their row of the table with others (--table-size).": [
            column.name for column in columns if column.shared > 0.5
        ],
    }
    yield from (sentence.format(_listed(names)) for sentence, names in problems.items() if names)


def next_commands(run: RunRecord) -> list[Block]:
    """Commands to copy."""
    if not run.folder:
        return []
    folder, data = quote(run.folder), quote(str(run.config.get("data", {}).get("what", "DATA")))
    commands: dict[str, str] = {}
    size = _smaller_batches(run)
    if size is not None:
        words = [*_data_options(run), "--batch-size", str(size), "--out", f"{run.folder}-2"]
        commands["Train with more steps:"] = f"daes train {data} {join(words)}"
    commands["Score other rows:"] = f"daes predict {folder} rows.parquet --out scores.parquet"
    following = quote(f"{run.folder}-next")
    commands["Continue with the next rows:"] = f"daes train rows.parquet --from {folder} --out {following}"
    return [Command(*command) for command in commands.items()]


def _data_options(run: RunRecord) -> list[str]:
    """The options of `daes train` with which the run read its data: its columns, and what their text means."""
    given = run.config.get("options", {})
    label, schema = run.schema.get("label"), given.get("schema")
    words = ["--schema", schema] if schema else ["--label", label] if label else []
    for name in _DATA_OPTIONS:
        value, flag = given.get(name), f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif isinstance(value, list | tuple):
            texts = value if name == "label_map" else [",".join(map(_quoted, value))] * bool(value)
            words += [word for text in texts for word in ("--names" if name == "column_names" else flag, text)]
        elif value:
            words += [flag, str(value)]
    return words


def _quoted(name: str) -> str:
    """A name in a list of names: in double quotes if it has a comma.

    >>> _quoted("price"), _quoted("a,b")
    ('price', '"a,b"')
    """
    return '"{}"'.format(name.replace('"', '""')) if set(name) & set(',"') else name


def _recent(run: RunRecord, name: str) -> float:
    """A metric over the window, or over all rows if there is no window."""
    return run.metrics.get(f"window_{name}", run.metrics.get(name, float("nan")))


def _smaller_batches(run: RunRecord) -> int | None:
    """The number of rows per step to suggest, if the run took few steps."""
    size = run.config.get("training", {}).get("batch_size")
    return suggest_more_steps(run.rows, run.batches, size) if run.rows and run.batches and size else None


def _listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are.

    >>> _listed(["a"]), _listed(["a", "b", "c"]), _listed(list("abcde"))
    ('a', 'a, b and c', 'a, b, c and 2 more')
    """
    if len(names) > _NAMED:
        return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
