"""The package as others get it: built, complete, and used where nothing else is installed.

`make test-package` does that for the core and the light extras, `make test-engines` for the heavy ones.
"""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import textwrap
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import torch

import daes

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

USES = {
    "data": """
        from daes.stream import Dataset
        Path("rows.csv").write_text("click,price,city\\n" + "0,1.5,Bern\\n1,2.5,Rome\\n" * 20)
        done = len(Dataset.open("rows.csv").sample(40))
    """,
    "save": """
        from daes.extras import require
        daes.CTRModel(schema, sizes=5).save_pretrained("model")
        done = len(require("safetensors.torch").load_file("model/model.safetensors"))
    """,
    "stats": """
        done = daes.CTRModel.from_sample(schema, batch, context="ranked").predict_proba(batch).shape[0]
    """,
    "sketches": """
        sketch = daes.ESTIMATORS["kll"]()
        sketch.update(np.arange(9.0))
        done = sketch.count
    """,
    "plot": """
        from daes.paper.figures import panels
        done = panels(1, 1, 3) is not None
    """,
    "datasets": """
        from daes.stream import Dataset
        done = len(Dataset.open("flights", limit=10).sample(10))
    """,
    "onnx": """
        daes.CTRModel.from_sample(schema, batch).to_onnx("model.onnx")
        import onnxruntime
        session = onnxruntime.InferenceSession("model.onnx")
        done = session.run(None, {"numerical": batch.numerical, "categorical": batch.categorical})[1].tolist()
    """,
    "serve": """
        from daes.extras import require
        require("uvicorn")
        from threading import Thread
        from urllib.request import urlopen
        from daes.serving.app import create_app
        from daes.serving.server import open_socket, run_server
        from daes.serving.service import Service
        socket = open_socket("127.0.0.1", 0)
        Thread(target=run_server, args=(create_app(Service("model")), socket), daemon=True).start()
        done = urlopen(f"http://127.0.0.1:{socket.getsockname()[1]}/healthz", timeout=60).status == 200
    """,
    "lightgbm": """
        tree = daes.build_embedding("td", num_features=1, learner="lightgbm")
        tree.fit(torch.from_numpy(batch.numerical), torch.from_numpy(batch.label))
        done = tree(torch.from_numpy(batch.numerical)).numel()
    """,
    "nats": """
        from daes.stream import Dataset
        from daes.stream.messages import BrokerError
        try:
            Dataset.open("nats://127.0.0.1:1/ads")
        except BrokerError as error:  # the client is there, and there is no server
            done = str(error).startswith("there is no NATS server at 127.0.0.1:1")
    """,
    "kafka": """
        from daes.stream import Dataset
        from daes.stream.messages import BrokerError
        try:
            Dataset.open("kafka://127.0.0.1:1/ads")
        except BrokerError as error:
            done = "127.0.0.1:1" in str(error)
    """,
    "tensorboard": """
        from daes.training.callbacks import TensorBoard
        train(TensorBoard("events"))
        done = [path.name for path in Path("events").iterdir()]
    """,
}
"""What each light extra promises; `datasets` reads its table through the extra `data`."""

HEAVY_USES = {
    "mlflow": """
        from daes.training.callbacks import MLflow
        tracker = MLflow("daes")
        train(tracker)
        import mlflow
        done = mlflow.get_run(mlflow.active_run().info.run_id).data.metrics["logloss"]
    """,
    "wandb": """
        import os
        os.environ["WANDB_MODE"] = "offline"
        from daes.training.callbacks import WandB
        train(WandB("daes"))
        done = [path.name for path in Path("wandb").rglob("*.wandb")]
    """,
    "ray": """
        from daes.engines import start_engine, summarize_table
        done = summarize_table(table(), engine=start_engine("ray"), parts=2).columns
    """,
    "spark": """
        from daes.engines import start_engine, summarize_table
        done = summarize_table(table(), engine=start_engine("spark"), parts=2).columns
    """,
    "torchrec": """
        from daes.engines.torchrec import ShardedEmbedding
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        vectors = ShardedEmbedding({"city": 5}, 4)(torch.tensor([[1]]))
        vectors.sum().backward()
        done = list(vectors.shape)
    """,
}
"""What each heavy extra promises; they are used in an environment that has `data` and `save`."""

TOGETHER = {"all", "test", "docs", "dev"}
"""Extras of extras and of what develops the package."""

SCRIPT = """
from pathlib import Path
import json
import numpy as np
import torch
import daes
from daes.extras import MissingExtraError

schema = daes.Schema("click", ("price",), ("city",))
rng = np.random.default_rng(0)
batch = daes.Batch(rng.random((9, 1), np.float32), rng.integers(1, 3, (9, 1)), (np.arange(9) % 2).astype(np.float32))

def train(tracker):
    data = daes.Dataset.open("adstream:300")
    config = daes.TrainConfig(batch_size=50, window=100)
    model = daes.CTRModel.from_sample(data.schema, data.sample(100))
    daes.StreamTrainer(model, config, on_record=[tracker]).run(data)

def table():
    Path("table.csv").write_text("click,price\\n" + "0,1.5\\n1,2.5\\n" * 20)
    return daes.Dataset.open("table.csv")

try:
{use}
    said = ["done", done]
except MissingExtraError as error:
    said = ["missing", str(error)]
print(json.dumps(said))
"""


OUTSIDE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
"""Variables of processes that are to find the installed package alone."""


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800, env=OUTSIDE, **options)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)])
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


class Environment:
    """A virtual environment of its own."""

    def __init__(self, folder):
        venv.create(folder / "venv", with_pip=True)
        self.folder = folder
        self.python = str(folder / "venv" / "bin" / "python")

    def install(self, *what):
        constraints = ["-c", str(ROOT / "constraints.txt")]
        run([self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *constraints, *what])

    def packages(self):
        listed = run([self.python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"])
        return {package["name"].lower() for package in json.loads(listed)}

    def use(self, script):
        """What a script made, `done`, or the error that says which extra it lacks."""
        text = SCRIPT.format(use=textwrap.indent(textwrap.dedent(script), "    "))
        said = run([self.python, "-c", text], cwd=self.folder).splitlines()
        return json.loads([line for line in said if line.startswith('["')][-1])  # others may have the last word


@pytest.fixture(scope="module")
def environment(built, tmp_path_factory):
    """The wheel alone, without any extra. Tests add extras to it, in the order of `USES`."""
    made = Environment(tmp_path_factory.mktemp("environment"))
    made.install(str(built[1]))
    return made


@pytest.mark.package
class TestArtefacts:
    def test_the_wheel_has_every_file_of_the_package(self, built):
        listed = run(["git", "ls-files", "src/daes"], cwd=ROOT).splitlines()
        with zipfile.ZipFile(built[1]) as wheel:
            names = set(wheel.namelist())
        assert {path.removeprefix("src/") for path in listed} <= names
        for name in (
            "py.typed",
            "report/templates/page.html",
            "report/templates/page.js",
            "embedding/kernels/places.py",
        ):
            assert f"daes/{name}" in names
        assert any(re.fullmatch(r"daes/report/vendor/.*\.js", name) for name in names)
        compiled = any(re.fullmatch(r"daes/native/.*\.(so|pyd|dylib|dll)", name) for name in names)
        assert compiled == (not built[1].name.endswith("-py3-none-any.whl"))
        assert not [name for name in names if not name.startswith(("daes/", f"daes-{daes.__version__}.dist-info/"))]

    def test_the_sdist_has_what_builds_tests_and_documents_it(self, built):
        with tarfile.open(built[0]) as sdist:
            names = {name.partition("/")[2] for name in sdist.getnames()}
        wanted = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt", "mkdocs.yml", "Makefile")
        assert set(wanted) <= names
        assert {"src/daes/py.typed", "tests/test_package.py", "docs/index.md"} <= names
        assert not [name for name in names if name.startswith((".venv", "data/", "runs/", "build/"))]

    def test_the_metadata_says_what_it_is(self, built):
        with zipfile.ZipFile(built[1]) as wheel:
            text = wheel.read(f"daes-{daes.__version__}.dist-info/METADATA").decode()
        metadata = email.message_from_string(text)
        assert metadata["Version"] == daes.__version__
        assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", daes.__version__)
        assert metadata["License-Expression"] == "Apache-2.0"
        assert "Typing :: Typed" in metadata.get_all("Classifier")
        assert set(metadata.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
        core = [need for need in metadata.get_all("Requires-Dist") if "extra ==" not in need]
        assert sorted(re.match(r"\w+", need)[0] for need in core) == ["numpy", "torch"]


@pytest.mark.package
class TestInstalled:
    """In order: the core alone, then one extra after the other."""

    def test_the_core_scores_and_learns(self, environment):
        assert not {"pyarrow", "scipy", "typer", "plotly", "pandas"} & environment.packages()
        script = """
            model = daes.CTRModel.from_sample(schema, batch)
            before = model.loss(batch).item()
            optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
            for _ in range(20):
                optimizer.zero_grad()
                model.loss(batch).backward()
                optimizer.step()
            reservoir = daes.JumpReservoir(size=10, seed=0)
            reservoir.update(np.arange(1000.0))
            model.save_pretrained("model")
            saved = daes.CTRModel.from_pretrained("model").schema == schema
            done = [model.loss(batch).item() < before, reservoir.sample.size, saved, daes.__file__]
        """
        kind, (learned, members, saved, file) = environment.use(script)
        assert (kind, learned, members, saved) == ("done", True, 10, True)
        assert Path(file).is_relative_to(environment.folder)

    def test_every_extra_is_used(self):
        assert {*USES, *HEAVY_USES, *TOGETHER, "cli"} == set(PROJECT["optional-dependencies"])

    def test_what_is_missing_is_named_with_its_extra(self, environment):
        for extra, script in {**USES, **HEAVY_USES}.items():
            kind, said = environment.use(script)
            needed = "data" if extra in ("datasets", "ray", "spark") else extra
            assert kind == "missing", extra
            assert said.endswith((f"pip install 'daes[{extra}]'", f"pip install 'daes[{needed}]'")), extra
        line = [environment.python, "-m", "daes"]
        command = subprocess.run(line, capture_output=True, text=True, check=False, env=OUTSIDE)
        assert command.returncode == 1
        assert command.stderr == "daes: typer is needed here and not installed: pip install 'daes[cli]'\n"

    def test_each_extra_brings_what_it_promises(self, environment, built):
        for extra, script in USES.items():
            environment.install(f"{built[1]}[{extra}]")
            kind, done = environment.use(script)
            assert (kind, bool(done)) == ("done", True), extra

    def test_the_command_trains_and_scores(self, environment, built):
        environment.install(f"{built[1]}[cli]")
        command = str(Path(environment.python).with_name("daes"))
        run([command, "train", "rows.csv", "--out", "run", "--quiet"], cwd=environment.folder)
        run([command, "predict", "run", "rows.csv", "--out", "scores.csv"], cwd=environment.folder)
        assert len((environment.folder / "scores.csv").read_text().splitlines()) == 41
        assert (environment.folder / "run" / "report.html").stat().st_size > 100_000


@pytest.mark.engines
class TestHeavyExtras:
    @pytest.fixture(scope="class")
    def environment(self, built, tmp_path_factory):
        made = Environment(tmp_path_factory.mktemp("heavy"))
        made.install(f"{built[1]}[data,save]")
        return made

    @pytest.mark.parametrize("extra", HEAVY_USES)
    def test_it_brings_what_it_promises(self, environment, built, extra):
        if extra == "spark" and shutil.which("java") is None:
            pytest.skip("Spark needs Java, which is not installed")
        if extra == "torchrec" and not torch.version.cuda:  # its own requirements ask for CUDA: as docs/engines.md says
            page = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
            for command in re.findall(r"`pip install ([^`]*(?:fbgemm-gpu-cpu|torchrec==)[^`]*)`", page):
                environment.install(*command.split())
        else:
            environment.install(f"{built[1]}[{extra}]")
        kind, done = environment.use(HEAVY_USES[extra])
        assert (kind, bool(done)) == ("done", True)
