"""`CTRModel`: schema + embedding + evidence + backbone."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from daes import native
from daes.backbone import BACKBONES, Backbone, build_backbone
from daes.backbone.layers import unchanged
from daes.checking import seeded
from daes.distribution import rank_context_fields, smallest_cardinality
from daes.distribution.base import check_positive
from daes.embedding import (
    METHODS,
    CategoricalEmbedding,
    Context,
    NotFittedError,
    NumericalEmbedding,
    build_embedding,
    suggest_sizes,
)
from daes.embedding.distributions import FeatureDistributions
from daes.embedding.modulation import pool_context
from daes.evidence import Evidence, EvidenceInputs
from daes.memory import out_of_memory
from daes.model.arguments import (
    DEFAULT_SIZE,
    as_saved,
    check_columns,
    check_sizes,
    common_dim,
    context_names,
    description,
    evidence_arguments,
    table_sizes,
    takes_plain,
)
from daes.model.device_batch import DeviceBatch
from daes.model.export import export_onnx, export_torch
from daes.model.tabled import tabled
from daes.native.evidence import Found
from daes.storage.saved_model import CONFIG, load_weights, open_model, refuse_other_schema, save_model
from daes.stream.batch import Batch
from daes.stream.schema import Schema


class CTRModel(nn.Module):
    """Predicts clicks: numbers and categories become vectors, a backbone combines them to a logit per row.

    **Shape.** `forward(numerical, categorical)`: (B, q) floats with NaN = missing and (B, p) int64 hashes with 0 =
    missing → logits (B,). A `Batch` may be given in place of both.

    Args:
        schema: the columns. All-numerical and all-categorical schemas work.
        embedding: the method for numbers: a name of `daes.embedding.METHODS`, or a module.
        backbone: the interaction: a name of `daes.backbone.BACKBONES`, or a module.
        dim: the dimension d of every embedding; by default that of the given modules, else 16.
        sizes: rows of each categorical field's table, by name, or one number for all.
        context: the categorical fields that modulate numbers in field-aware methods: names, "smallest" (the
            `num_context` smallest tables, the paper's rule) or None.
        num_context: the number of fields for "smallest".
        l2: λ of the paper's loss, BCE + λ‖Θ‖².
        evidence: inputs of the network that are counted from past clicks, not learned, for values, ids and pairs: an
            `Evidence`, its arguments, True for its defaults or False for none. It is not used with a backbone without
            plain inputs, or a module whose `plain_dim` does not include it. Logits start from what was counted: the
            click rate so far plus the log odds of the row's values and ids, scaled by a learned weight.
        categorical_options: further arguments of `CategoricalEmbedding` (mode, min_count, strict, sparse).
        categorical: a module for the categories in place of `CategoricalEmbedding(sizes, dim, **categorical_options)`,
            as `daes.engines.torchrec.ShardedEmbedding`; `sizes` are then its own. Or a subclass to call instead.
        embedding_options: further arguments of a method given by name.
        backbone_options: further arguments of a backbone given by name.

    >>> schema = Schema("click", numerical=("price", "age"), categorical=("city",))
    >>> model = CTRModel(schema, embedding="daes", backbone="deepfm", sizes={"city": 100})
    >>> batch = Batch(np.array([[1, 30], [np.nan, 40]], np.float32), np.array([[5], [0]]), np.array([1, 0], np.float32))
    >>> model(batch).shape
    torch.Size([2])
    >>> model.predict_proba(batch).shape
    (2,)
    >>> from daes.embedding import DAES
    >>> CTRModel(schema, DAES(num_features=2, dim=8, num_meta=20), sizes={"city": 100}).dim
    8
    """

    _context_index: Tensor

    def __init__(
        self,
        schema: Schema,
        embedding: str | NumericalEmbedding = "daes",
        backbone: str | Backbone = "deepfm",
        *,
        dim: int | None = None,
        sizes: int | Mapping[str, int] = DEFAULT_SIZE,
        context: str | Sequence[str] | None = "smallest",
        num_context: int = 3,
        l2: float = 0.0,
        evidence: Evidence | Mapping[str, Any] | bool | None = True,
        categorical_options: Mapping[str, Any] | None = None,
        embedding_options: Mapping[str, Any] | None = None,
        backbone_options: Mapping[str, Any] | None = None,
        categorical: CategoricalEmbedding | type[CategoricalEmbedding] = CategoricalEmbedding,
    ) -> None:
        super().__init__()
        self.lock = RLock()
        if not 0 <= l2 < float("inf"):
            raise ValueError(f"l2 must be finite and not negative, got {l2}")
        table_options = dict(categorical_options or {})
        if isinstance(categorical, CategoricalEmbedding):
            check_sizes("categorical", categorical, num_fields=schema.num_categorical)
            if table_options:
                raise ValueError(f"options of the categories must be given to the module itself, got {table_options}")
            table_options, sizes = categorical.options, dict(zip(schema.categorical, categorical.sizes, strict=True))
        self.schema = schema
        self.dim = common_dim(dim, embedding, backbone, categorical)
        self.l2 = l2
        self.sizes = table_sizes(schema, sizes)
        self.context = context_names(schema, context, self.sizes, num_context)
        # Presets are stored as options, so that a saved model stays the same if a preset is ever improved.
        method, method_options = description(METHODS, embedding, embedding_options)
        interaction, interaction_options = description(BACKBONES, backbone, backbone_options)
        config = {
            "embedding": method,
            "backbone": interaction,
            "dim": self.dim,
            "sizes": self.sizes,
            "context": list(self.context),
            "l2": l2,
            "evidence": evidence_arguments(evidence) if takes_plain(backbone, interaction_options) else None,
            "categorical_options": table_options,
            "embedding_options": method_options,
            "backbone_options": interaction_options,
        }
        self.config: dict[str, Any] = as_saved(config)
        self.numerical = None
        self.categorical = None
        # Each part has a seed of its own: with one seed, models of two methods have the same tables and network.
        seeds = torch.randint(2**62, (3,), device="cpu").tolist()
        if schema.num_numerical or isinstance(embedding, NumericalEmbedding):
            with seeded(seeds[0]):
                self.numerical = self._make_embedding(embedding)
        if schema.num_categorical:
            with seeded(seeds[1]):
                if isinstance(categorical, type):
                    categorical = categorical(self.sizes, self.dim, **table_options)
                self.categorical = categorical
        self.evidence = self._make_evidence(backbone)
        with seeded(seeds[2]):
            self.backbone = self._make_backbone(backbone)
        places = [schema.categorical.index(name) for name in self.context]
        self.register_buffer("_context_index", torch.tensor(places, dtype=torch.int64), persistent=False)

    def _make_embedding(self, embedding: str | NumericalEmbedding) -> NumericalEmbedding:
        if isinstance(embedding, NumericalEmbedding):
            check_sizes("embedding", embedding, num_features=self.schema.num_numerical)
            return embedding
        options = dict(self.config["embedding_options"])
        if self.context and options.get("context_pool") == "concat":
            options.setdefault("num_context", len(self.context))
        return build_embedding(embedding, self.schema.num_numerical, self.dim, **options)

    def _make_evidence(self, backbone: str | Backbone) -> EvidenceInputs:
        table = self.categorical
        offsets, rows = ([], 0) if table is None else (table.offsets, table.num_rows)
        if self.config["evidence"] is not None:
            made = EvidenceInputs(Evidence(**self.config["evidence"]), self.schema.num_numerical, offsets, rows)
            numbers = 0 if self.numerical is None else self.numerical.plain_dim
            if isinstance(backbone, str) or backbone.plain_dim == numbers + made.dim:
                return made
            self.config["evidence"] = None  # the module's inputs do not include it
        return EvidenceInputs(Evidence(numbers=False, categories=False), self.schema.num_numerical, offsets, rows)

    def _make_backbone(self, backbone: str | Backbone) -> Backbone:
        numbers = self.numerical
        num_fields = self.schema.num_categorical + (0 if numbers is None else numbers.num_outputs)
        plain_dim = 0 if numbers is None else numbers.plain_dim
        options = self.config["backbone_options"]
        if numbers is not None and plain_dim and not takes_plain(backbone, options):
            if not numbers.num_outputs:
                raise ValueError(
                    f"backbone must take plain inputs for embedding={self.config['embedding']!r}, which gives no "
                    f"vectors, got {self.config['backbone']!r}"
                )
            plain_dim = 0  # the vectors suffice
            if isinstance(backbone, Backbone) and backbone.takes_plain:
                options["plain_dim"] = 0  # by its name it would have plain inputs
        plain_dim += self.evidence.dim
        if isinstance(backbone, str):
            backbone = build_backbone(backbone, num_fields, self.dim, **{"plain_dim": plain_dim, **options})
        check_sizes("backbone", backbone, num_fields=num_fields, plain_dim=plain_dim)
        return backbone

    @classmethod
    def from_sample(cls, schema: Schema, sample: Batch, **arguments: Any) -> Self:
        """A model whose tables and context are chosen by a sample of the rows.

        `sizes` follow the cardinalities in the sample, and `context` may also be "ranked": the fields that change the
        distribution of the numbers by a Kruskal–Wallis test, strongest first. An offline method is fitted on the rows.
        """
        check_columns(schema, sample)
        mode = (arguments.get("categorical_options") or {}).get("mode", "hash")
        cardinalities = {
            name: np.unique(sample.categorical[:, field]).size for field, name in enumerate(schema.categorical)
        }
        suggested = suggest_sizes(cardinalities, mode=mode)
        given = arguments.pop("sizes", {})
        sizes = {**suggested, **given} if isinstance(given, Mapping) else given
        context = arguments.pop("context", "smallest")
        count = arguments.get("num_context", 3)
        check_positive(num_context=count)
        if context == "ranked" and schema.num_numerical and schema.num_categorical:
            ranking = rank_context_fields(sample.numerical, sample.categorical, names=schema.categorical)
            context = ranking.significant(count)
        elif context == "ranked":
            context = ()
        elif context == "smallest":
            context = smallest_cardinality(cardinalities, count)
        model = cls(schema, sizes=sizes, context=context, **arguments)
        model.fit_embedding(sample)
        return model

    def forward(self, numerical: Tensor | Batch, categorical: Tensor | None = None) -> Tensor:
        if isinstance(numerical, Batch):
            numerical, categorical = self.prepare(numerical).features
        numbers, table, evidence, backbone = self.numerical, self.categorical, self.evidence, self.backbone
        fields, plain, context = [], [], None
        rows = None
        if table is not None:
            if categorical is None:
                raise ValueError(
                    f"categorical must be given for the columns {', '.join(self.schema.categorical)}, got None"
                )
            rows = table.find(categorical)
            fields.append(table.look_up(rows))
            if numbers is not None and numbers.uses_context and self.context:
                context = self._context(rows, fields[0])
        if numbers is not None:
            if getattr(backbone, "plain_dim", 0) > evidence.dim:
                vectors, inputs = numbers.outputs(numerical, context)
                plain += [] if inputs is None else [inputs]
            else:
                vectors = numbers(numerical, context)
            fields.insert(0, vectors)
        counted = None
        if evidence.dim:
            counted = evidence(numerical, rows).to(fields[0].dtype)
            plain.append(counted)
        combined = evidence.combined(numerical, rows)
        network = backbone.network() if native.serves() and isinstance(backbone, Backbone) else None
        if network is not None:
            found = network.logits(fields, plain, evidence.weight, evidence.base)
            if found is not None:
                return found if combined is None else found + combined
        logits: Tensor = backbone(torch.cat(fields, dim=1), torch.cat(plain, 1) if plain else None)
        logits = logits + evidence.logit(counted).to(logits.dtype)
        return logits if combined is None else logits + combined.to(logits.dtype)

    def correction(self, numerical: Tensor, categorical: Tensor) -> Tensor | None:
        """A correction (B,) to the logits of the next rows of a stream, by the errors of the last ones.

        Scores outside of a stream are those of `forward`. None without `Evidence(recent=…)`.
        """
        return None if self.evidence.recent is None else self.evidence.correction(numerical, self.rows(categorical))

    def rows(self, categorical: Tensor) -> Tensor:
        """The rows of the categories' table that hashes (B, p) look up."""
        return categorical if self.categorical is None else self.categorical.rows(categorical)

    def observe(self, numerical: Tensor, categorical: Tensor) -> None:
        """Update the distributions and the vocabularies with a batch, as a forward in `train()` does first."""
        if self.categorical is not None and self.categorical.vocabulary is not None:
            self.categorical.observe(categorical)
        if self.numerical is not None and self.numerical.observe_in_forward:
            self.numerical.observe(numerical)

    def count(
        self, batch: DeviceBatch, logits: Tensor | None = None, found: Found | None = None, *, refit: bool = True
    ) -> None:
        """Update the evidence with the labels of a batch that was learned from.

        Args:
            batch: the rows.
            logits: their logits (B,) before the step; if None, no errors are recorded.
            found: where the rows were looked up, if that is known.
            refit: whether to cut bins and choose combinations anew if that is due; else call `EvidenceInputs.refit`.
        """
        if batch.label is not None:
            rows = self.rows(batch.categorical) if found is None else found.rows
            self.evidence.update(batch.numerical, rows, batch.label, logits, found, refit=refit)

    @contextmanager
    def without_observing(self) -> Iterator[None]:
        """Within it, a forward in `train()` does not observe the batch."""
        numbers = self.numerical
        vocabulary = None if self.categorical is None else self.categorical.vocabulary
        before = numbers is not None and numbers.observe_in_forward, vocabulary is not None and vocabulary.training
        try:
            if numbers is not None:
                numbers.observe_in_forward = False
            if vocabulary is not None:
                vocabulary.eval()
            yield
        finally:
            if numbers is not None:
                numbers.observe_in_forward = before[0]
            if vocabulary is not None:
                vocabulary.train(before[1])

    def loss(self, batch: Batch) -> Tensor:
        """Mean binary cross-entropy of the batch, weighted if there are weights, plus λ‖Θ‖²."""
        rows = self.prepare(batch)
        return self.cross_entropy(self(*rows.features), *rows.targets) + self.penalty()

    @staticmethod
    def cross_entropy(logits: Tensor, label: Tensor, weight: Tensor | None = None) -> Tensor:
        """Mean binary cross-entropy, weighted if there are weights; 0 without rows or if all weights are 0.

        Training uses only this method, so a subclass that overrides it trains with its own loss.

        **Shape.** All tensors are (B,); the result is a scalar.
        """
        if not len(label):
            return logits.sum()
        if weight is None:
            return F.binary_cross_entropy_with_logits(logits, label.to(logits))
        losses = F.binary_cross_entropy_with_logits(logits, label.to(logits), reduction="none")
        weight = weight.to(logits)
        return (losses * weight).sum() / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)

    def penalty(self) -> Tensor:
        """λ‖Θ‖² over all parameters. An optimiser with weight decay 2λ adds the same gradient without the sum."""
        if not self.l2:
            return torch.zeros((), device=self.device)
        return self.l2 * torch.stack([parameter.square().sum() for parameter in self.parameters()]).sum()

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model to a folder: `model.safetensors` with every tensor, `config.json` with everything else.

        Parts are saved by name and options, so that a module given to the model must be of a registered class.
        """
        self.check_registered()
        with self.lock:
            save_model(self, self.schema, self.config, Path(folder))

    def check_registered(self) -> None:
        """Raise a ValueError if a part is not of a registered class or not made by options, by which it is saved."""
        if self.numerical is not None and not self.numerical.is_described:
            raise ValueError(
                "embedding must be made by its options for the model to be saved, got one with knots of its own, as "
                "DAES.from_knots makes it: save its state_dict"
            )
        for part, registry in (("embedding", METHODS), ("backbone", BACKBONES)):
            if self.config[part] not in registry:
                raise ValueError(
                    f"{part} must be of a registered class for the model to be saved, got {self.config[part]}: "
                    f"decorate the class with @register_{registry.kind}(name, …)"
                )

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, schema: Schema | None = None) -> Self:
        """Read a model that `save_pretrained` wrote. A `schema` that differs from the saved one is an error."""
        folder = Path(folder)
        with open_model(folder) as (saved, config, weights):
            if schema is not None:
                refuse_other_schema(schema, saved)
            options = config.get("embedding_options")
            if config.get("embedding") in METHODS and isinstance(options, dict):
                config = {**config, "embedding_options": METHODS[config["embedding"]].spelled_out(options)}
            try:
                model = cls(saved, **config)
            except (TypeError, ValueError, RuntimeError, MemoryError, KeyError, AttributeError) as error:
                reason = out_of_memory(error) or error
                raise ValueError(f"{folder / CONFIG} does not describe a model: {reason}") from error
            if lacking := sorted(model.config.keys() - config.keys()):
                raise ValueError(f"{folder / CONFIG} does not describe a whole model: it lacks {', '.join(lacking)}")
            load_weights(model, weights, folder)
        return model.eval()

    def to_onnx(self, path: str | Path) -> None:
        """Write the model as ONNX, for onnxruntime: see `daes.model.export` for inputs and outputs."""
        self._export(lambda model, schema, path: export_onnx(model, schema, path, self._tables()), path)

    def to_torch(self, path: str | Path) -> None:
        """Write the model as a program of `torch.export`, for use without this package: see `daes.model.export`."""
        self._export(export_torch, path)

    def _tables(self) -> nn.Module | None:
        """This model in eval mode as tables, unless its class, or a part, is another one than `tabled` knows."""
        return tabled(self) if unchanged(self, CTRModel) else None

    def _export(self, write: Callable[[nn.Module, Schema, Path], None], path: str | Path) -> None:
        if self.needs_fit:
            raise NotFittedError("the method is offline: call fit_embedding with representative rows before an export")
        with self.scoring(), self.evidence.tabled():
            write(self, self.schema, Path(path))

    @torch.no_grad()
    def predict_proba(self, batch: Batch) -> NDArray[np.float64]:
        """The probability of a click for each row, (B,).

        Other threads may learn meanwhile (`TrainingStep.learn`): the scores are those of the model between two steps,
        and scoring does not affect learning.
        """
        with self.scoring():
            return torch.sigmoid(self(batch).double()).cpu().numpy()

    @contextmanager
    def scoring(self) -> Iterator[None]:
        """Within it, the model is in eval mode and no other thread learns; the modes are restored afterwards."""
        with self.lock:
            modes = [(part, part.training) for part in self.modules()]  # a vocabulary may have a mode of its own
            self.eval()
            try:
                yield
            finally:
                for part, mode in modes:
                    part.training = mode

    def fit_embedding(self, sample: Batch) -> Self:
        """Fit an offline method on rows of the stream; does nothing for other methods."""
        if self.numerical is not None and self.numerical.offline:
            labels = None if sample.label is None else torch.from_numpy(sample.label)
            self.numerical.fit(torch.from_numpy(sample.numerical).to(self.device), labels)
        return self

    @property
    def distributions(self) -> FeatureDistributions | None:
        """The sample of the numerical features that the model updates while it learns; None if it has none."""
        known = None if self.numerical is None else self.numerical.distributions
        return known if isinstance(known, FeatureDistributions) and known.follows else None

    def freeze(self) -> Self:
        """Drop what only learning needs: the samples of features and rows.

        Its knots and counts do not change any more. It keeps its parameters, knots and vocabularies, and what past
        clicks say: two counts per row of the tables, and a number per cell of a combination.
        """
        if self.numerical is not None and self.numerical.distributions is not None:
            self.numerical.distributions.freeze()
        self.evidence.freeze()
        return self

    @property
    def needs_fit(self) -> bool:
        """Whether the method is offline and not fitted yet."""
        return self.numerical is not None and self.numerical.offline and not bool(self.numerical.fitted)

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self.evidence.total.device  # finding a parameter takes longer

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "lock"}  # a lock cannot be copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.lock = RLock()

    def prepare(self, batch: Batch) -> DeviceBatch:
        """The batch's tensors on the model's device; its columns must be those of the schema."""
        check_columns(self.schema, batch)
        arrays = batch.numerical, batch.categorical, batch.label, batch.weight
        tensors: list[Any] = [None if array is None else torch.from_numpy(array) for array in arrays]
        if (device := self.device).type != "cpu":
            tensors = [None if one is None else one.to(device, non_blocking=True) for one in tensors]
        return DeviceBatch(*tensors)

    def parameter_groups(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """Parameters with dense and with sparse gradients; the latter need an optimiser such as SparseAdam."""
        table = self.categorical
        sparse = [table.weight] if table is not None and table.sparse and not table.sharded else []
        dense = [parameter for parameter in self.parameters() if not any(parameter is other for other in sparse)]
        return dense, sparse

    def _context(self, rows: Tensor, vectors: Tensor) -> Tensor | Context:
        """The context of each row, computed once per distinct combination if these are cheap to find."""
        assert self.categorical is not None
        pool = getattr(self.numerical, "context_pool", "mean")
        index, table = self._context_index, self.categorical
        total = table.num_rows
        # Finding distinct contexts would stall a device; an exported graph has no data-dependent shapes; look-ups in a
        # sharded table need the same shapes in all processes.
        elsewhere = rows.device.type != "cpu" or table.sharded
        if elsewhere or torch.compiler.is_compiling() or total ** len(index) >= 2**63:
            return pool_context(vectors.index_select(1, index), pool)
        places = total ** torch.arange(len(index))
        distinct, inverse = torch.unique(rows.index_select(1, index) @ places, return_inverse=True)
        if 4 * len(distinct) > len(rows):
            return pool_context(vectors.index_select(1, index), pool)
        combinations = distinct.unsqueeze(1) // places % total
        return Context(pool_context(table.look_up(combinations), pool), inverse)
