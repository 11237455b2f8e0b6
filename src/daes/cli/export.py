"""`daes export`: a trained model as one file, for servers without daes."""

from pathlib import Path

from daes.cli.console import note, print_json
from daes.cli.options import Json, RunArgument, option


def export(
    run: RunArgument,
    out: Path = option("The file: .onnx or .pt2.", "--out", "-o", metavar="FILE", show_default=False, default=...),
    format: str | None = option("onnx or torch.", metavar="NAME", show_default="by the ending of FILE"),
    json: Json = False,
) -> None:
    """Write the newest model of a run to one file that computes scores without daes.

    onnx is for onnxruntime, torch for `torch.export.load`. The file holds everything that the model has learned; beside
    it, FILE_rows.py turns rows into the inputs of the model and needs the standard library alone. If RUN is still being
    trained, its newest checkpoint is exported.

    Examples:

        daes export run --out model.onnx
        daes export run --format torch --out model.pt2
    """
    from daes.serving.export import export_run

    loaded, rows_file = export_run(run, out, format)
    if json:
        content = {"run": str(run), "version": loaded.version.name, "rows": loaded.rows, "out": str(out)}
        print_json({**content, "rows_file": str(rows_file)})
    else:
        note(f"wrote {loaded.version.name} of {run} to {out}; {rows_file} prepares rows for it")
