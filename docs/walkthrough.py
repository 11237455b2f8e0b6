"""Every command on one messy CSV file and on its Parquet twin: `python docs/walkthrough.py` writes docs/walkthrough.md.

The files are made here, the commands run in a temporary folder, and what they print goes into the page. The script ends
with an error if a command's exit code is not the expected one, or if CSV and Parquet give other scores.
"""

import argparse
import csv
import json
import math
import os
import platform
import random
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "walkthrough.md"
FORMAT = "--separator ';' --decimal ,"
MEANING = "--label-map yes=1 --label-map no=0"
LABEL = f"--label clicked {MEANING}"
READ = f"{FORMAT} {LABEL} --bad-rows skip"
COLUMNS = "--time when --numerical price,age --categorical user,zip,city,device"
TWIN = f"{LABEL} --bad-rows skip"
SMALL = "--methods efd,daes --backbones fnn --seeds 1 --jobs 1"


@dataclass(frozen=True)
class Step:
    """A part of the page: a heading, what to say, and commands with the exit codes they should have."""

    title: str
    text: str
    commands: tuple[str, ...] = ()
    code: int = 0


def messy_rows(rows: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Rows as they are meant; `typo` and `label` say what is wrong with the text of a row."""
    rng = random.Random(seed)
    start = datetime(2026, 1, 1)
    for number in range(rows):
        price = round(rng.lognormvariate(3, 1), 2)
        age = rng.randint(18, 80)
        city = rng.choice(["Bern", "Zürich", "Genève"])
        odds = -1.5 + math.sin(math.log(price)) + (city == "Bern")
        yield {
            "when": start + timedelta(minutes=number),
            "price": None if rng.random() < 0.1 else price,
            "age": None if rng.random() < 0.3 else age,
            "cost": None if rng.random() < 0.1 else f"${rng.randint(1, 9)},{rng.randint(10, 99)}",
            "user": None if rng.random() < 0.05 else 9_000_000_000_000_000_000 + rng.randint(0, 200),
            "zip": None if rng.random() < 0.05 else f"{rng.randint(1, 99) * 100:05}",
            "city": None if rng.random() < 0.1 else city,
            "device": rng.choice(["phone", "desktop", None]),
            "clicked": "yes" if rng.random() < 1 / (1 + math.exp(-odds)) else "no",
            "typo": number % 97 == 50,
            "label": number % 89 == 40,
        }


def write_csv(path: Path, rows: int) -> None:
    """Semicolons, decimal commas, three ways to say that a number is missing, typos and labels that are none."""
    missing = random.Random(1)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["", "when", "price", "age", "cost", "user", "zip", "city", "device", "note", "clicked"])
        for number, row in enumerate(messy_rows(rows)):
            price = (
                missing.choice(["", "NULL", r"\N"]) if row["price"] is None else f"{row['price']:.2f}".replace(".", ",")
            )
            texts = {
                name: "" if row[name] is None else str(row[name]) for name in ("age", "cost", "user", "zip", "city")
            }
            writer.writerow(
                [
                    number,
                    row["when"].isoformat(sep=" "),
                    "12,5O" if row["typo"] else price,
                    *texts.values(),
                    row["device"] or "",
                    "",
                    "maybe" if row["label"] else row["clicked"],
                ]
            )


def write_parquet(path: Path, rows: int) -> None:
    """The same rows with types, but for those with a typo, which a column of numbers cannot hold."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, list[Any]] = {}
    for row in messy_rows(rows):
        if row["typo"]:
            continue
        label = "maybe" if row["label"] else row["clicked"]
        kept = {name: value for name, value in row.items() if name not in ("typo", "label")}
        for name, value in {**kept, "note": None, "clicked": label}.items():
            columns.setdefault(name, []).append(value)
    pq.write_table(pa.table(columns), path)


def steps(rows: int, demo: bool) -> list[Step]:
    """The walk-through, in order."""
    few = max(rows // 4, 200)
    found = [
        Step("Look at what is there", "", ("daes doctor",)),
        Step(
            "Train, and be told what is wrong",
            "Without a word on how the file is written, its columns are not what was meant. The exit code is 2, and "
            "nothing is written.",
            ("daes train messy.csv --out run",),
            2,
        ),
        Step(
            "",
            "With separator and label the file can be read, up to the first row that cannot:",
            (f"daes train messy.csv {FORMAT} {LABEL} --out run",),
            2,
        ),
        Step(
            "See what it takes the columns for",
            "A few rows are enough for that. `price` has typos, so that it is text; `cost` has dollar signs; `user` "
            "and `zip` are codes that look like numbers.",
            (f"daes train messy.csv {READ} --limit 200 --no-report --out first",),
        ),
        Step(
            "Train",
            "`--bad-rows skip` leaves such rows out and lists them. The columns are named, because `user` and `zip` "
            "look like numbers and are codes. The unnamed and the empty column are left out.",
            (f"daes train messy.csv {READ} {COLUMNS} --out run",),
        ),
        Step("", "The rows that were left out:", ("head -4 run/bad_rows.csv",)),
        Step(
            "The same from Parquet",
            "",
            (f"daes train messy.parquet {TWIN} {COLUMNS} --out twin",),
        ),
        Step(
            "Evaluate and score",
            "These are the rows that the model has learned from, which flatters it: evaluate on rows that came later. "
            "A row that cannot be read keeps its place and has an empty score.",
            (
                f"daes evaluate run messy.csv {READ}",
                f"daes predict run messy.csv {FORMAT} --bad-rows skip --keep user,zip,price --out scores.csv",
                "sed -n '1,3p;52p' scores.csv",
                "daes predict twin messy.parquet --out twin.csv",
            ),
        ),
        Step(
            "Look at the data",
            "",
            (
                f"daes drift messy.csv {READ} {COLUMNS} --segments 5",
                f"daes context messy.csv {READ} {COLUMNS}",
                "daes distribution messy.parquet --column price",
            ),
        ),
        Step(
            "Compare methods",
            "",
            (f"daes compare messy.csv {READ} {COLUMNS} {SMALL} --limit {few} --out table",),
        ),
        Step(
            "Go on with other rows",
            "",
            (f"daes train messy.parquet {MEANING} --bad-rows skip --from run --limit {few} --out next --no-report",),
        ),
        Step("Export and serve", "", ("daes export run --out model.onnx", "serve run", "watch run")),
        Step("Without a file", "", ("daes methods efd", "daes backbones fm", "daes paper list")),
    ]
    if demo:
        found.append(Step("", "", ("daes demo --rows 1000 --seeds 1 --jobs 1 --out demo",)))
    return found


def run(command: str, folder: Path, code: int) -> str:
    """What a command prints, both streams; another exit code than expected is an error."""
    program = folder / ".bin" / "daes"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m daes "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "110", "NO_COLOR": "1"}
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != code:
        raise SystemExit(f"`{command}` ended with {done.returncode}, expected {code}:\n{done.stdout}")
    return clean(done.stdout, folder)


def clean(text: str, folder: Path) -> str:
    """Without the temporary folder, this machine's kernel, overwritten progress, and blanks at the ends of lines."""
    text = text.replace(f"{folder}/", "").replace(platform.platform(), platform.system())
    lines = [line.rpartition("\r")[2].rstrip() for line in text.splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def serve(folder: Path) -> str:
    """`daes serve` and a request; what was sent and what came back."""
    body = {
        "rows": [{"price": 12.5, "city": "Bern", "zip": "00100", "user": 9_000_000_000_000_000_001}, {"city": None}]
    }
    said = ask(folder, "serve", "/predict", body)
    sent = f"-H 'content-type: application/json' -d '{json.dumps(body)}'"
    return f"$ daes serve run --port 8000 &\n$ curl localhost:8000/predict {sent}\n{said}"


def watch(folder: Path) -> str:
    """`daes watch` and the title of its page."""
    title = re.search("<title>.*</title>", ask(folder, "watch", "/"))
    if title is None:
        raise SystemExit("the page of daes watch has no title")
    return f"$ daes watch run --port 8001 &\n$ curl -s localhost:8001 | grep -o '<title>.*</title>'\n{title[0]}"


def ask(folder: Path, command: str, path: str, body: Any = None) -> str:
    """Start a command that answers over HTTP, send one request, stop it; the answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", content, {"content-type": "application/json"})
    program = [sys.executable, "-m", "daes", command, "run", "--port", str(port)]
    server = subprocess.Popen(program, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(900):
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return str(answer.read().decode())
            except OSError:
                if server.poll() is not None:
                    raise SystemExit(f"daes {command} ended with {server.returncode}") from None
                time.sleep(0.2)
        raise SystemExit(f"daes {command} does not answer")
    finally:
        server.terminate()
        server.wait(60)


def compare_scores(folder: Path, rows: int) -> str:
    """A sentence on the scores of CSV and Parquet; an error where they differ."""
    every = _scores(folder / "scores.csv")
    from_csv = [score for score in every if score]
    from_parquet = _scores(folder / "twin.csv")
    if len(every) != rows or len(from_csv) == rows or from_csv != from_parquet:
        different = sum(one != other for one, other in zip(from_csv, from_parquet, strict=False))
        raise SystemExit(
            f"{rows} rows, {len(from_csv)} scores of CSV and {len(from_parquet)} of Parquet, {different} of them differ"
        )
    return (
        "**CSV and Parquet gave the same scores.** Two models, one trained on each file, gave the same "
        f"{len(from_csv):,} scores, digit for digit. The CSV file has {rows - len(from_csv):,} rows more: those with a "
        "typo. The script that made this page checks it."
    )


def _scores(path: Path) -> list[str]:
    with path.open(newline="", encoding="utf-8") as file:
        return [row["score"] for row in csv.DictReader(file)]


LIVE = {"serve run": serve, "watch run": watch}
"""Commands that run until they are stopped."""


def walk(folder: Path, rows: int, *, demo: bool = True) -> str:
    """Run everything in a folder; the text of the page."""
    write_csv(folder / "messy.csv", rows)
    write_parquet(folder / "messy.parquet", rows)
    with (folder / "messy.csv").open(encoding="utf-8") as file:
        head = "".join(line for number, line in enumerate(file) if number in (0, 1, 2, 3, 41, 51))
    parts = [
        "# Every command on one messy file",
        "<!-- made by docs/walkthrough.py -->",
        f"`python docs/walkthrough.py` made this page: it wrote a CSV file of {rows:,} rows with what real files have "
        "in them, and the same rows as Parquet, ran every command, and copied what they printed. Semicolons and "
        r"decimal commas, prices that are missing in three ways (empty, `NULL`, `\N`) and mistyped (`12,5O` with a "
        "letter), dollar signs, ids of 19 digits, codes with leading zeros, an unnamed and an empty column, labels "
        "that are none (`maybe`), missing values of each kind:",
        f"```text\n{head.rstrip()}\n```",
    ]
    for step in steps(rows, demo):
        parts += [f"## {step.title}"] if step.title else []
        parts += [step.text] if step.text else []
        for command in step.commands:
            live = LIVE.get(command)
            printed = live(folder) if live else f"$ {command}\n{run(command, folder, step.code)}"
            parts.append(f"```text\n{printed.rstrip()}\n```")
        if step.title.startswith("Evaluate"):
            parts.append(compare_scores(folder, rows))
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=PAGE)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        arguments.out.write_text(walk(Path(folder), arguments.rows), encoding="utf-8")
    print(f"wrote {shlex.quote(str(arguments.out))}")


if __name__ == "__main__":
    main()
