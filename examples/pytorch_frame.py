"""pytorch-frame's FT-Transformer, its numerical columns encoded by daes."""

import pandas as pd
import torch
from torch_frame import stype
from torch_frame.data import Dataset
from torch_frame.nn import EmbeddingEncoder, FTTransformer

from daes.adapters.torch_frame import StreamingEncoder

torch.manual_seed(0)
rows = pd.DataFrame({"price": torch.randn(600).exp().tolist(), "city": ["Bern", "Rome", "Oslo"] * 200})
rows["click"] = (rows["price"] > 1).astype(int)
columns = {"price": stype.numerical, "city": stype.categorical, "click": stype.categorical}
data = Dataset(rows, columns, target_col="click").materialize()

encoders = {stype.numerical: StreamingEncoder(), stype.categorical: EmbeddingEncoder()}
names = data.tensor_frame.col_names_dict
model = FTTransformer(16, 1, 1, data.col_stats, names, stype_encoder_dict=encoders)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(40):
    logits = model(data.tensor_frame).squeeze(1)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, data.tensor_frame.y.float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss of the last pass: {loss.item():.3f}")
