"""Tables too large for one process, sharded by rows with TorchRec.

`TorchRecEmbedding` is used by `daes train --divide-tables torchrec`; `ShardedEmbedding` is for custom training loops.
"""

import logging
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from daes.choices import check_choice
from daes.embedding import DividedEmbedding
from daes.embedding.categorical import CategoricalEmbedding
from daes.extras import require
from daes.model import CTRModel

OPTIMIZERS = {"adagrad": "EXACT_ADAGRAD", "sgd": "EXACT_SGD", "adam": "ADAM"}
"""The optimisers and their names in FBGEMM."""

_TABLE = "rows"


class ShardedEmbedding(CategoricalEmbedding):
    """`CategoricalEmbedding` whose rows are divided equally among the processes of `torch.distributed`.

    A look-up sends row numbers to the processes that hold these rows and receives their vectors, so all processes must
    look up together, each for its own rows of the batch, possibly none. The backward pass sends gradients back the same
    way and applies them immediately: TorchRec's fused optimiser is part of the table, and no other optimiser may update
    it. The table is therefore not in `parameters()`, and its `state_dict` is refused: `unsharded` gives a model that
    can be saved.

    Gradients are divided by the number of processes, as in DistributedDataParallel.

    **Shape.** ids (B, p) int64, 0 = missing → (B, p, d), as of `CategoricalEmbedding`.

    Args:
        sizes, dim: as for `CategoricalEmbedding`.
        optimizer: "adagrad", "sgd" or "adam".
        learning_rate: its step size.
        seed: each process draws its rows from N(0, init_std²) with this seed and its rank.
        device: the device of the rows; None for the current CUDA device with NCCL, otherwise the CPU.
        options: further arguments of `CategoricalEmbedding` (mode, min_count, strict, init_std, …).
    """

    sharded: ClassVar[bool] = True
    _collection: Any

    def __init__(
        self,
        sizes: Any,
        dim: int,
        *,
        optimizer: str = "adagrad",
        learning_rate: float = 0.03,
        seed: int = 0,
        device: torch.device | str | None = None,
        **options: Any,
    ) -> None:
        check_choice("optimizer", optimizer, OPTIMIZERS)
        if not learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, got {learning_rate}")
        if not (dist.is_available() and dist.is_initialized()):
            raise RuntimeError("a sharded table needs processes: call torch.distributed.init_process_group first")
        require("torchrec")
        self._fused = {
            "optimizer": getattr(require("fbgemm_gpu.split_embedding_configs").EmbOptimType, OPTIMIZERS[optimizer]),
            "learning_rate": learning_rate,
            "eps": 1e-10 if optimizer == "adagrad" else 1e-8,
        }
        self._seed = seed
        self._device = torch.device(device or _default_device())
        super().__init__(sizes, dim, **options)
        self.register_state_dict_pre_hook(_refuse_state)  # type: ignore[no-untyped-call]

    def _make_table(self) -> None:
        # Not a submodule: its parameters have their own optimiser and differ between processes.
        object.__setattr__(self, "_collection", _sharded(self.num_rows, self.dim, self._fused, self._device))
        self.reset_parameters()

    @property
    def shard(self) -> Tensor:
        """The rows of this process, (about num_rows / processes, d); may be written to."""
        return _shard_of(self._collection)[0]

    @property
    def first_row(self) -> int:
        return _shard_of(self._collection)[1]

    def reset_parameters(self) -> None:
        """Draw new values for the rows of this process."""
        generator = torch.Generator(self._device).manual_seed(self._seed * 2**20 + dist.get_rank())
        nn.init.normal_(self.shard, std=self.init_std, generator=generator)

    def look_up(self, rows: Tensor) -> Tensor:
        """The vectors of these rows, (B, p) → (B, p, d); all processes must call it."""
        return _vectors(self._collection, rows.reshape(-1)).view(*rows.shape, self.dim)

    def load_rows(self, weight: Tensor) -> None:
        """Take the rows of this process from a whole table (num_rows, d)."""
        if weight.shape != (self.num_rows, self.dim):
            raise ValueError(f"weight must have shape ({self.num_rows}, {self.dim}), got {tuple(weight.shape)}")
        shard = self.shard
        shard.copy_(weight[self.first_row : self.first_row + len(shard)])

    def whole(self) -> Tensor | None:
        """The whole table on the CPU of process 0, None in the others; all processes must call it."""
        shard = self.shard.cpu()
        lengths: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(lengths, len(shard))
        if dist.get_rank():
            if len(shard):
                dist.send(shard.contiguous(), 0)
            return None
        parts = [shard]
        for rank, length in enumerate(lengths[1:], 1):
            part = torch.empty(length, self.dim)
            if length:
                dist.recv(part, rank)
            parts.append(part)
        return torch.cat(parts)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, processes={dist.get_world_size()}"


class TorchRecEmbedding(DividedEmbedding):
    """`DividedEmbedding` whose rows are in a row-wise sharded table of TorchRec, which looks them up.

    TorchRec's fused optimiser is not used: it would apply gradients in the backward pass, before the processes know
    that the batch is not a bad one.

    **Shape.** ids (B, p) int64, 0 = missing → (B, p, d), as of `CategoricalEmbedding`.
    """

    _collection: Any

    def _allocate(self, count: int) -> Tensor:
        require("torchrec")
        fused = {"optimizer": require("fbgemm_gpu.split_embedding_configs").EmbOptimType.EXACT_SGD}  # has no state
        with torch.random.fork_rng(devices=[]):  # TorchRec draws initial rows, which are not kept
            object.__setattr__(self, "_collection", _sharded(self.num_rows, self.dim, fused, torch.device("cpu")))
        shard, first_row = _shard_of(self._collection)
        assert (len(shard), first_row) == (count, self.first_row)
        return shard

    def _bring(self, rows: Tensor) -> Tensor:
        return _vectors(self._collection, rows).detach()


def unsharded(model: CTRModel) -> CTRModel | None:
    """The same model with a plain `CategoricalEmbedding` on the CPU of process 0; None in the others.

    All processes must call it; process 0 needs memory for the whole table.
    """
    table = model.categorical
    if not isinstance(table, ShardedEmbedding):
        raise ValueError(f"model must have a ShardedEmbedding, got {type(table).__name__}")
    weight = table.whole()
    if weight is None:
        return None
    options = {name: value for name, value in model.config.items() if name not in ("embedding", "backbone")}
    made = CTRModel(model.schema, model.config["embedding"], model.config["backbone"], **options)
    assert made.categorical is not None
    for name, part in model.named_children():
        if name != "categorical":
            made.get_submodule(name).load_state_dict(part.state_dict())
    if table.vocabulary is not None and made.categorical.vocabulary is not None:
        made.categorical.vocabulary.load_state_dict(table.vocabulary.state_dict())
    with torch.no_grad():
        made.categorical.weight.copy_(weight)
    return made.train(model.training)


def _sharded(num_rows: int, dim: int, fused: dict[str, Any], device: torch.device) -> Any:
    """A TorchRec table whose rows are divided among all processes."""
    torchrec, plans = require("torchrec"), require("torchrec.distributed.sharding_plan")
    logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)  # it warns about TorchRec's use of it
    config = torchrec.EmbeddingConfig(name=_TABLE, embedding_dim=dim, num_embeddings=num_rows, feature_names=[_TABLE])
    whole = torchrec.EmbeddingCollection(tables=[config], device=torch.device("meta"))
    sharder = require("torchrec.distributed.embedding").EmbeddingCollectionSharder(fused_params=fused)
    count = dist.get_world_size()
    plan = plans.construct_module_sharding_plan(
        whole,
        {_TABLE: plans.row_wise(compute_kernel="fused")},
        sharder=sharder,
        local_size=count,
        world_size=count,
        device_type=device.type,
    )
    env = require("torchrec.distributed.types").ShardingEnv.from_process_group(dist.group.WORLD)
    return sharder.shard(whole, plan, env, device=device)


def _shard_of(collection: Any) -> tuple[Tensor, int]:
    """The rows of this process, which may be written to, and the number of the first one."""
    (part,) = collection.state_dict()[f"embeddings.{_TABLE}.weight"].local_shards()
    return part.tensor.detach(), int(part.metadata.shard_offsets[0])


def _vectors(collection: Any, rows: Tensor) -> Tensor:
    """The vectors (n, d) of rows (n,)."""
    # One list of all row numbers, even if empty: TorchRec does not support an empty batch.
    length = torch.tensor([len(rows)], dtype=torch.int32, device=rows.device)
    numbers = require("torchrec").KeyedJaggedTensor.from_lengths_sync([_TABLE], rows, length)
    vectors: Tensor = collection(numbers).wait()[_TABLE].values()
    return vectors


def _default_device() -> str:
    cuda = torch.cuda.is_available() and "nccl" in str(dist.get_backend())
    return f"cuda:{torch.cuda.current_device()}" if cuda else "cpu"


def _refuse_state(*_: Any) -> None:
    raise RuntimeError(
        "a sharded table has no state_dict, since no process has all of it: save the result of unsharded(model)"
    )
