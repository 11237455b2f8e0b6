"""A tabular MLP as in `rtdl_num_embeddings`' README, with embeddings that follow the stream's distribution."""

import torch
from torch import nn

from daes.adapters.rtdl import NumericalEmbeddings  # was: from rtdl_num_embeddings import PeriodicEmbeddings

torch.manual_seed(0)
embeddings = NumericalEmbeddings(n_features=4, d_embedding=8)  # was: PeriodicEmbeddings(4, 8, lite=False)
width = embeddings.get_output_shape().numel()
model = nn.Sequential(embeddings, nn.Flatten(), nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

for _ in range(60):
    values = torch.randn(256, 4).exp()
    label = (values[:, :1] > 1.0).float()
    loss = nn.functional.binary_cross_entropy_with_logits(model(values), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss of the last batch: {loss.item():.3f}")
