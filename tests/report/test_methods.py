import pytest

from daes.backbone import BACKBONES
from daes.embedding import METHODS
from daes.report.content import Heading
from daes.report.methods import explained, first_paragraph, run_methods
from daes.report.run_record import RunRecord


@pytest.mark.parametrize("name", [*METHODS, *BACKBONES])
def test_everything_registered_is_explained_in_plain_text(name):
    text = first_paragraph((METHODS[name] if name in METHODS else BACKBONES[name]).cls)
    assert len(text) > 30
    assert not {"`", "*", "\n"} & set(text)


def test_a_run_names_and_explains_its_parts():
    model = {"embedding": "ple", "backbone": "dcnv2", "evidence": {"numbers": True}}
    blocks = run_methods(RunRecord("a run", config={"model": model}, schema={"numerical": ["price"]}))
    headings = [block.text for block in blocks if isinstance(block, Heading)]
    assert headings == ["Evidence", "Measures"]
    assert [row[0] for row in blocks[0].rows] == ["ple", "dcnv2"]
    assert str(METHODS["ple"].reference) in str(blocks[0].rows[0])
    without = run_methods(RunRecord("a run", config={"model": {"embedding": "ple", "backbone": "lr"}}))
    assert [row[0] for row in without[0].rows] == ["lr"]


def test_a_comparison_lists_its_methods_once():
    (table,) = explained(["fe", "daes", "fe"], ["fnn"])
    assert [row[0] for row in table.rows] == ["fe", "daes", "fnn"]
    assert explained(["mine"], ["my own"]) == []
