"""TorchRec's DLRM with a dense architecture that follows the distributions of the dense features."""

import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.models.dlrm import DLRM

from daes.adapters.torchrec import StreamingDenseArch

torch.manual_seed(0)
table = EmbeddingBagConfig(name="city", embedding_dim=8, num_embeddings=100, feature_names=["city"])
model = DLRM(
    EmbeddingBagCollection([table]), dense_in_features=3, dense_arch_layer_sizes=[16, 8], over_arch_layer_sizes=[16, 1]
)
model.dense_arch = StreamingDenseArch(in_features=3, layer_sizes=[16, 8])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

for _ in range(60):
    dense = torch.randn(256, 3).exp()
    cities = torch.randint(0, 100, (256,))
    sparse = KeyedJaggedTensor.from_lengths_sync(["city"], cities, torch.ones(256, dtype=torch.int32))
    label = (dense[:, :1] > 1.0).float()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(model(dense, sparse), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss of the last batch: {loss.item():.3f}")
