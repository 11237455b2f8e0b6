import torch

from daes.training.optimizer import TableAdagrad


def test_table_adagrad_is_adagrad_on_the_rows_of_a_batch():
    torch.manual_seed(0)
    start = torch.randn(20, 3)
    dense, sparse = (torch.nn.Parameter(start.clone()) for _ in range(2))
    plain, table = torch.optim.Adagrad([dense], lr=0.03), TableAdagrad([sparse], lr=0.03)
    for _ in range(30):
        rows = torch.randint(20, (8,))  # some rows several times
        for parameter, optimizer, as_sparse in ((dense, plain, False), (sparse, table, True)):
            optimizer.zero_grad()
            torch.nn.functional.embedding(rows, parameter, sparse=as_sparse).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(sparse, dense)
    assert not torch.equal(sparse, start)
