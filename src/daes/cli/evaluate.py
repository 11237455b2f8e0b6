"""`daes evaluate`: the metrics of a trained model on other rows."""

from collections.abc import Mapping

from daes.cli.console import note, out, print_json, say
from daes.cli.groups import grouped
from daes.cli.options import BatchSize, Device, Json, RunArgument, option
from daes.cli.reading import DataArgument, Reading, data_name
from daes.formatting import fixed
from daes.table import Cell, Table
from daes.training.environment import find_device

_METRICS = {
    "auc": ("AUC", "how often a click outscores a non-click"),
    "logloss": ("LogLoss", "mean of −log p(what happened)"),
    "normalized_entropy": ("normalised entropy", "LogLoss over that of the click rate alone"),
    "brier": ("Brier score", "mean squared error of the probability"),
    "calibration": ("calibration", "clicks predicted over clicks"),
    "ece": ("calibration error", "mean |predicted − clicked| over bins"),
}


@grouped
def evaluate(
    run: RunArgument,
    data: DataArgument,
    label: str | None = option("The label column, if its name differs from training.", metavar="NAME"),
    *,
    reading: Reading,
    batch_size: BatchSize = 8192,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Evaluate a trained model on rows without learning from them.

    The columns have the same names as in training. CSV files are read as those of training were (separator, decimal
    mark, missing values, label map, …), unless options say otherwise. To evaluate a model that keeps learning, as in
    production, use `daes train`: it scores every row before it learns from it.

    Examples:

        daes evaluate run next_week.parquet
        daes evaluate run 'logs/2024-06-*.csv.gz' --json
    """
    from daes.cli.progress import row_progress
    from daes.storage.run_folder import RunFolder
    from daes.training.scoring import evaluate as measure
    from daes.training.scoring import load_trained

    model = load_trained(run, find_device(device))
    with row_progress("scoring", reading.limit) as bar:
        rows = reading.open(data, schema=model.schema, trained=RunFolder(run).data_options())
        metrics = measure(model, rows, label=label, batch_size=batch_size, progress=bar.advance)
    values = metrics.compute()
    if not metrics.count:
        raise ValueError(f"the data must have at least one row; {data_name(data)} has none")
    bad = rows.bad_rows
    if bad.count:
        note(str(bad))
    if json:
        content = {
            "run": str(run),
            "data": data,
            "metrics": values,
            "undefined": metrics.undefined(),
            "bad_rows": bad.count,
        }
        print_json(content)
        return
    out.print(f"{metrics.count:,} rows")
    print_metrics(values, metrics.undefined())


def print_metrics(metrics: Mapping[str, float], undefined: Mapping[str, str]) -> None:
    """Print a table of the metrics, then why some are not defined."""
    out.print(metrics_table(metrics))
    for name, reason in undefined.items():
        say(f"{name} is not defined: {reason}")


def metrics_table(metrics: Mapping[str, float]) -> Table:
    """One line per metric: over the stream and, if there is one, over the window."""
    scopes = {"stream": "", "window": "window_"} if "window_auc" in metrics else {"stream": ""}
    rows = [
        (title, *(fixed(metrics[f"{prefix}{name}"]) for prefix in scopes.values()), Cell(meaning, style="dim"))
        for name, (title, meaning) in _METRICS.items()
    ]
    return Table(("metric", *scopes, ""), rows, left=frozenset({0, len(scopes) + 1}))
