import pytest

from daes.backbone import BACKBONES
from daes.embedding import METHODS
from daes.report.content import Heading, Paragraph
from daes.report.methods import compared_methods, first_paragraph, run_methods
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
    assert headings == [
        "How numbers become vectors: piecewise linear encoding (ple)",
        "How vectors interact: DCN v2 (dcnv2)",
        "Evidence",
        "Measures",
    ]
    texts = " ".join(block.text for block in blocks if isinstance(block, Paragraph))
    assert str(METHODS["ple"].reference) in texts
    without = run_methods(RunRecord("a run", config={"model": {"embedding": "ple", "backbone": "lr"}}))
    assert "How numbers" not in str(without)


def test_a_comparison_lists_its_methods_once():
    (table,) = compared_methods(["fe", "daes", "fe"], ["fnn"])
    assert [row[0] for row in table.rows] == ["fe", "daes", "fnn"]
    assert compared_methods(["mine"], ["my own"]) == []
