import torch

from daes.embedding import DAES
from daes.embedding.compilation import outside_graphs


def test_a_compiled_module_observes_as_one_that_is_not():
    torch.manual_seed(0)
    plain = DAES(2, dim=4).train()
    torch.manual_seed(0)
    other = DAES(2, dim=4).train()
    compiled = torch.compile(other, backend="eager")
    for seed in range(3):
        values = torch.randn(50, 2, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(compiled(values), plain(values))
    assert torch.equal(other.distributions.count, torch.tensor([150, 150]))
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def test_what_a_function_calls_is_not_compiled_either():
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def inner(values):
        return values.sin() + 1

    @outside_graphs
    def outer(values):
        return inner(values).cos()

    compiled = torch.compile(lambda values: outer(values * 2) * 3, backend=backend)
    values = torch.arange(3.0)
    torch.testing.assert_close(compiled(values), ((values * 2).sin() + 1).cos() * 3)
    called = {node.name for graph in graphs for node in graph.graph.nodes}
    assert not called & {"sin", "cos"}
    assert "mul" in called
