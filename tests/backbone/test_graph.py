"""Every backbone as a graph: torch.compile, torch.export, ONNX.

All of them go into one module together, because making a graph costs seconds, however small it is.
"""

import pytest
import torch
from torch import nn

from daes.backbone import BACKBONES, build_backbone

NUM_FIELDS, DIM, PLAIN_DIM = 5, 4, 3
VARIANTS = {
    **{name: (name, {}) for name in BACKBONES},
    "opnn_kernel": ("opnn", {"product": "kernel"}),
    "dcnv2_rank": ("dcnv2", {"rank": 2}),
}
SMALL = {"hidden": (8, 4), "dropout": 0.0, "layers": 2, "cin": (6, 3, 4), "neurons": 8, "blocks": 2, "block_dim": 6}


class Together(nn.Module):
    """All backbones on the same inputs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.models = nn.ModuleDict()
        for key, (name, options) in VARIANTS.items():
            cls = BACKBONES[name]
            small = {option: value for option, value in SMALL.items() if option in cls.options}
            plain_dim = PLAIN_DIM if cls.takes_plain else 0
            self.models[key] = build_backbone(name, NUM_FIELDS, DIM, plain_dim=plain_dim, **small, **options)

    def forward(self, fields, plain):
        return {key: model(fields, plain if model.plain_dim else None) for key, model in self.models.items()}


def make_inputs(rows):
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, NUM_FIELDS, DIM, generator=generator), torch.randn(rows, PLAIN_DIM, generator=generator)


@pytest.fixture(scope="module")
def together():
    model = Together().train()
    for rows in (16, 24):
        model(*make_inputs(rows))
    return model.eval()


@pytest.fixture
def dynamic_batch():
    batch = torch.export.Dim("batch")
    return {"fields": {0: batch}, "plain": {0: batch}}


def assert_same(actual, expected):
    assert actual.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(actual[key], value, rtol=1e-4, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}")


def test_torch_compile_in_training():
    eager, model = Together().train(), Together().train()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True, dynamic=True)
    for rows in (6, 7):
        assert_same(compiled(*make_inputs(rows)), eager(*make_inputs(rows)))
    torch.testing.assert_close(dict(model.named_buffers()), dict(eager.named_buffers()))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_takes_one_row_in_training(backend):
    torch._dynamo.reset()
    model = build_backbone("nfm", NUM_FIELDS, DIM, hidden=(8,), dropout=0.0).train()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for rows in (6, 1):
        fields = make_inputs(rows)[0]
        compiled(fields).sum().backward()
    before = model.norm.running_mean.clone()
    torch.testing.assert_close(compiled(fields), model(fields))
    assert torch.equal(model.norm.running_mean, before)


def test_torch_export(together, dynamic_batch):
    program = torch.export.export(together, make_inputs(6), dynamic_shapes=dynamic_batch)
    for rows in (9, 1, 0):
        assert_same(program.module()(*make_inputs(rows)), together(*make_inputs(rows)))


@pytest.mark.filterwarnings("ignore")
def test_onnx(together, dynamic_batch):
    onnxruntime = pytest.importorskip("onnxruntime")
    program = torch.onnx.export(
        together, make_inputs(6), dynamo=True, dynamic_shapes=dynamic_batch, verbose=False, optimize=True
    )
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    for rows in (9, 1, 0):
        fields, plain = make_inputs(rows)
        outputs = session.run(None, {"fields": fields.numpy(), "plain": plain.numpy()})
        actual = {key: torch.from_numpy(value) for key, value in zip(VARIANTS, outputs, strict=True)}
        assert_same(actual, together(fields, plain))
