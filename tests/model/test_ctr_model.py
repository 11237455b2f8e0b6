"""Schema + embedding + backbone: every method with every backbone, contexts, loss, modes, bad input."""

import copy
import itertools
import json

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import nn

from daes.backbone import BACKBONES, Backbone
from daes.backbone.dcnv2 import DCNv2
from daes.backbone.fnn import FNN
from daes.distribution import rank_context_fields
from daes.embedding import (
    DAES,
    METHODS,
    CategoricalEmbedding,
    Context,
    NotFittedError,
    NumericalEmbedding,
    build_embedding,
)
from daes.embedding.modulation import pool_context
from daes.model import DEFAULT_SIZE, CTRModel
from daes.storage.saved_model import sealed
from daes.stream.batch import Batch, batch_from_table
from daes.stream.schema import Schema

SCHEMA = Schema("click", ("price", "age", "stay"), ("city", "device", "hour"))
PAPER_BACKBONES = tuple(BACKBONES)[:6]
NO_PLAIN = [name for name, backbone in BACKBONES.items() if not backbone.takes_plain]
SIZES = {"city": 50, "device": 5, "hour": 20}


def make_batch(rows=48, seed=0, schema=SCHEMA, weight=False):
    """Heavy-tailed numbers with gaps and an infinity, few categories with gaps."""
    rng = np.random.default_rng(seed)
    numerical = rng.lognormal(sigma=2, size=(rows, schema.num_numerical)).astype(np.float32)
    numerical[rng.random(numerical.shape) < 0.1] = np.nan
    if numerical.size:
        numerical[0, 0] = np.inf
    categorical = rng.integers(0, 4, (rows, schema.num_categorical)) * (2**61 - 1)
    label = (rng.random(rows) < 0.4).astype(np.float32)
    return Batch(numerical, categorical, label, rng.random(rows).astype(np.float32) if weight else None)


def make_model(embedding="daes-gate", backbone="fnn", *, seed=0, schema=SCHEMA, evidence=False, **options):
    torch.manual_seed(seed)
    return CTRModel.from_sample(
        schema,
        make_batch(schema=schema),
        embedding=embedding,
        backbone=backbone,
        dim=4,
        evidence=evidence,
        **options,
    )


def train(model, steps=2, *, seed=0, learning_rate=0.01):
    torch.manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), learning_rate)
    model.train()
    for step in range(steps):
        optimizer.zero_grad()
        loss = model.loss(make_batch(seed=step, schema=model.schema))
        loss.backward()
        optimizer.step()
    return loss.item()


def state_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same_state(first, second):
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, rtol=0, atol=0, equal_nan=True, msg=name)


@pytest.fixture(scope="module")
def scored():
    return make_batch(40, seed=9)


class TestEveryCell:
    """Each method with each backbone: trains, saves, reloads, goes on."""

    @pytest.mark.parametrize(
        ("backbone", "embedding"),
        [cell for cell in itertools.product(BACKBONES, METHODS) if cell[0] not in NO_PLAIN or cell[1] != "youtube"],
    )
    def test_trains_saves_and_reloads_with_equal_scores(self, backbone, embedding, tmp_path, scored):
        model = make_model(embedding, backbone)
        before = model.predict_proba(scored)
        assert np.isfinite(train(model))
        scores = model.predict_proba(scored)
        assert scores.shape == (40,)
        assert scores.dtype == np.float64
        assert ((scores > 0) & (scores < 1)).all()
        assert (scores != before).any()
        model.save_pretrained(tmp_path)
        reloaded = CTRModel.from_pretrained(tmp_path)
        assert not reloaded.training
        assert np.array_equal(reloaded.predict_proba(scored), scores)

    @pytest.mark.parametrize("embedding", METHODS)
    def test_a_reloaded_model_learns_on_as_if_nothing_had_happened(self, embedding, tmp_path, scored):
        model = make_model(embedding, "widedeep")
        train(model)
        model.save_pretrained(tmp_path)
        reloaded = CTRModel.from_pretrained(tmp_path)
        assert train(reloaded, seed=1) == train(model, seed=1)
        assert_same_state(state_of(reloaded), state_of(model))
        assert np.array_equal(reloaded.predict_proba(scored), model.predict_proba(scored))

    @pytest.mark.parametrize("backbone", NO_PLAIN)
    def test_a_backbone_without_a_place_for_plain_inputs_says_so(self, backbone):
        with pytest.raises(ValueError, match=f"embedding='youtube'.*got '{backbone}'"):
            make_model("youtube", backbone)

    @pytest.mark.parametrize("backbone", BACKBONES)
    def test_vectors_do_without_their_plain_inputs_where_there_is_no_place_for_them(self, backbone):
        model = make_model("daes", backbone)
        assert model.numerical.plain_dim == 6
        assert getattr(model.backbone, "plain_dim", 0) == (0 if backbone in NO_PLAIN else 6)
        train(model)

    def test_unknown_names(self):
        with pytest.raises(ValueError, match=r"method must be one of .*got 'deas'.*did you mean 'daes'"):
            make_model("deas")
        with pytest.raises(ValueError, match=r"backbone must be one of .*got 'deepfn'"):
            make_model(backbone="deepfn")


class Slope(NumericalEmbedding):
    """A method that nobody registered."""

    def __init__(self, num_features, dim=16):
        super().__init__(num_features, dim)
        self.table = self.new_table(num_features, dim)

    def encode(self, values, place, context):
        return torch.tanh(values).unsqueeze(-1) * self.table


class Total(Backbone):
    """A backbone that nobody registered."""

    def _logit(self, fields, plain):
        return self.flatten(fields, plain).sum(dim=1)


class TestModules:
    def test_modules_are_taken_as_they_are(self):
        numbers, network = DAES(3, 4, num_meta=7), FNN(6, 4, hidden=(5,))
        model = CTRModel(SCHEMA, numbers, network, sizes=SIZES)
        assert model.numerical is numbers
        assert model.backbone is network
        assert model.dim == 4
        train(model)

    def test_a_module_and_its_name_make_the_same_model(self):
        def parts(seed):
            torch.manual_seed(seed)
            return DAES(3, 4, num_meta=7), FNN(6, 4, hidden=(5,))

        model = CTRModel(SCHEMA, *parts(1), sizes=SIZES)
        named = CTRModel(
            SCHEMA,
            "daes-gate",
            "fnn",
            dim=4,
            sizes=SIZES,
            evidence=False,
            embedding_options={"num_meta": 7},
            backbone_options={"hidden": (5,)},
        )
        assert model.config == named.config
        named.load_state_dict(model.state_dict())
        assert torch.equal(model.eval()(make_batch()), named.eval()(make_batch()))

    @pytest.mark.parametrize(
        "numbers",
        [DAES(3, 4, modulation="tran"), build_embedding("daes", 3, 4), build_embedding("efd", 3, 4, num_bins=3)],
        ids=["daes-tran", "daes", "efd"],
    )
    def test_modules_of_registered_classes_are_saved_by_name_and_options(self, numbers, tmp_path, scored):
        plain_dim = numbers.plain_dim
        network = DCNv2(6, 4, plain_dim=plain_dim, layers=1, hidden=(5,), dropout=0.0)
        model = CTRModel.from_sample(SCHEMA, make_batch(), embedding=copy.deepcopy(numbers), backbone=network)
        train(model)
        model.save_pretrained(tmp_path)
        assert json.loads((tmp_path / "config.json").read_text())["model"]["embedding"] in METHODS
        reloaded = CTRModel.from_pretrained(tmp_path)
        assert reloaded.config == model.config
        assert reloaded.backbone.layers == 1
        assert np.array_equal(reloaded.predict_proba(scored), model.predict_proba(scored))

    @pytest.mark.parametrize(
        ("parts", "sentence"),
        [
            ((Slope(3, 4), "fnn"), r"embedding must be of a registered class .*Slope.* @register_method\(name"),
            (("fe", Total(6, 4)), r"backbone must be of a registered class .*Total.* @register_backbone\(name"),
        ],
    )
    def test_modules_of_other_classes_train_but_are_not_saved(self, parts, sentence, tmp_path):
        model = CTRModel(SCHEMA, *parts, dim=4, sizes=SIZES)
        train(model)
        with pytest.raises(ValueError, match=sentence):
            model.save_pretrained(tmp_path / "model")
        assert not (tmp_path / "model").exists()

    def test_a_method_that_its_options_do_not_describe_is_not_saved(self, tmp_path):
        model = CTRModel(SCHEMA, DAES.from_knots(torch.arange(12.0).view(3, 4), 4), "fnn", sizes=SIZES)
        train(model)
        with pytest.raises(ValueError, match=r"embedding must be made by its options .*DAES\.from_knots"):
            model.save_pretrained(tmp_path / "model")
        assert not (tmp_path / "model").exists()

    def test_a_backbone_without_plain_inputs_does_without_them(self):
        numbers = build_embedding("daes", 3, 4)
        assert numbers.plain_dim == 6
        train(CTRModel(SCHEMA, numbers, FNN(6, 4), sizes=SIZES))
        train(CTRModel(SCHEMA, numbers, FNN(6, 4, plain_dim=6), sizes=SIZES))
        with pytest.raises(ValueError, match="backbone must have plain_dim=6, got plain_dim=5"):
            CTRModel(SCHEMA, numbers, FNN(6, 4, plain_dim=5), sizes=SIZES)
        with pytest.raises(ValueError, match="backbone must take plain inputs for embedding='youtube'"):
            CTRModel(SCHEMA, "youtube", FNN(3, 4), sizes=SIZES)

    @pytest.mark.parametrize(
        ("arguments", "error", "sentence"),
        [
            ({"embedding": DAES(2, 4)}, ValueError, "embedding must have num_features=3, got num_features=2"),
            ({"embedding": DAES(3, 4), "dim": 8}, ValueError, "dim must be the same .*got 8 and 4 in DAES"),
            ({"embedding": "fe", "backbone": FNN(6, 4), "dim": 8}, ValueError, "got 8 and 4 in FNN"),
            ({"embedding": DAES(3, 4), "backbone": FNN(6, 8)}, ValueError, "got 4 and 8 in FNN"),
            (
                {"embedding": "fe", "backbone": FNN(5, 4)},
                ValueError,
                "backbone must have num_fields=6, got num_fields=5",
            ),
            (
                {"embedding": DAES(3, 4), "embedding_options": {"num_meta": 3}},
                ValueError,
                r"options of the method must be given to the module itself, got \{'num_meta': 3\}",
            ),
            ({"embedding": nn.Linear(3, 4)}, TypeError, "method must be a name or a module"),
            ({"backbone": None}, TypeError, "backbone must be a name or a module, got None"),
        ],
    )
    def test_parts_that_do_not_fit(self, arguments, error, sentence):
        with pytest.raises(error, match=sentence):
            CTRModel(SCHEMA, sizes=SIZES, **arguments)


class TestPresets:
    def test_a_saved_model_stays_what_it_was_when_its_preset_grows(self, tmp_path, scored):
        options = {"modulation": None, "basis": "hat", "knots": 100, "linear": "value", "plain": []}
        model = make_model("daes", embedding_options=options)
        train(model)
        model.save_pretrained(tmp_path)
        config = json.loads((tmp_path / "config.json").read_text())
        del config["model"]["embedding_options"]["plain"]  # as a preset of earlier days, which did not name it
        (tmp_path / "config.json").write_text(json.dumps(sealed(config)))
        reloaded = CTRModel.from_pretrained(tmp_path)
        assert reloaded.numerical.plain == ()
        assert np.array_equal(reloaded.predict_proba(scored), model.predict_proba(scored))

    def test_the_options_are_the_models_own_and_come_back_equal(self, tmp_path):
        model = make_model("daes", embedding_options={"plain": ("rank",)})
        model.save_pretrained(tmp_path)
        assert CTRModel.from_pretrained(tmp_path).config == model.config
        other = make_model("daes")
        other.config["embedding_options"]["plain"].append("rank")
        assert make_model("daes").config["embedding_options"]["plain"] == ["score", "value"]

    def test_another_backbone_takes_the_raw_inputs_or_goes_without(self):
        model = make_model("daes", "fm")
        model.backbone = make_model("daes", "fnn").backbone
        train(model)
        model.backbone = make_model("daes", "fm").backbone
        train(model)


class TestSchemas:
    @pytest.mark.parametrize("backbone", PAPER_BACKBONES)
    @pytest.mark.parametrize("embedding", ["daes", "daes-tran", "youtube", "dlrm", "td"])
    @pytest.mark.parametrize("columns", [1, 3])
    def test_all_numerical(self, backbone, embedding, columns, tmp_path):
        schema = Schema("click", SCHEMA.numerical[:columns], ())
        model = make_model(embedding, backbone, schema=schema)
        train(model)
        assert model.categorical is None
        assert model.context == ()
        batch = make_batch(seed=5, schema=schema)
        with torch.no_grad():
            assert torch.equal(model.eval()(torch.from_numpy(batch.numerical)), model(batch))
        model.save_pretrained(tmp_path)
        assert np.array_equal(CTRModel.from_pretrained(tmp_path).predict_proba(batch), model.predict_proba(batch))

    @pytest.mark.parametrize("backbone", PAPER_BACKBONES)
    @pytest.mark.parametrize("columns", [1, 3])
    def test_all_categorical(self, backbone, columns, tmp_path):
        schema = Schema("click", (), SCHEMA.categorical[:columns])
        model = make_model("td", backbone, schema=schema)
        train(model)
        assert model.numerical is None
        assert not model.needs_fit
        batch = make_batch(seed=5, schema=schema)
        model.save_pretrained(tmp_path)
        assert np.array_equal(CTRModel.from_pretrained(tmp_path).predict_proba(batch), model.predict_proba(batch))

    def test_numbers_are_fields_like_any_other(self):
        assert make_model("daes").backbone.num_fields == 6
        assert make_model("dlrm").backbone.num_fields == 4
        model = make_model("youtube")
        assert (model.backbone.num_fields, model.backbone.plain_dim) == (3, 9)

    def test_numbers_come_first(self):
        model = make_model("fe")
        seen = []
        model.backbone.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        batch = make_batch()
        model.eval()(batch)
        numerical, categorical = model.prepare(batch).features
        assert torch.equal(seen[0][:, :3], model.numerical(numerical))
        assert torch.equal(seen[0][:, 3:], model.categorical(categorical))


class OnlyNumbers(nn.Module):
    """A backbone that looks at the vectors of numbers alone."""

    def forward(self, fields, plain=None):
        return fields[:, :3].sum((1, 2))


class TestContext:
    def test_by_names(self):
        assert make_model(context=("hour", "city")).context == ("hour", "city")
        assert make_model(context="device").context == ("device",)

    def test_none(self):
        model = make_model(context=None)
        assert model.context == ()
        assert np.isfinite(train(model))
        # Without a context modulation is off, so its weight does not matter.
        before = model.predict_proba(make_batch())
        nn.init.ones_(model.numerical.modulation_weight)
        assert np.array_equal(model.predict_proba(make_batch()), before)

    def test_smallest_tables_smallest_first(self):
        assert CTRModel(SCHEMA, sizes=SIZES).context == ("device", "hour", "city")
        assert CTRModel(SCHEMA, sizes=SIZES, num_context=2).context == ("device", "hour")
        assert CTRModel(SCHEMA, sizes=7, num_context=2).context == ("city", "device")

    def test_smallest_of_a_sample_by_the_categories_it_has(self):
        rng = np.random.default_rng(0)
        categorical = np.stack([rng.integers(1, high, 500) for high in (40, 3, 9)], 1)
        sample = Batch(rng.random((500, 3), np.float32), categorical)
        assert CTRModel.from_sample(SCHEMA, sample).context == ("device", "hour", "city")
        # Sizes that were given do not change how many categories there are.
        assert CTRModel.from_sample(SCHEMA, sample, sizes=5, num_context=1).context == ("device",)

    def test_ranked_finds_the_field_that_shifts_the_numbers(self):
        rng = np.random.default_rng(0)
        categorical = rng.integers(1, 4, (900, 3))
        numerical = rng.random((900, 3)).astype(np.float32) + categorical[:, 2:].astype(np.float32)
        sample = Batch(numerical, categorical)
        model = CTRModel.from_sample(SCHEMA, sample, context="ranked", embedding="daes-gate")
        assert model.context[0] == "hour"
        ranking = rank_context_fields(numerical, categorical, names=SCHEMA.categorical)
        assert model.context == ranking.significant(3)
        with pytest.raises(ValueError, match=r"context must name .*got ranked.*from_sample"):
            CTRModel(SCHEMA, context="ranked")

    def test_ranked_without_numbers_or_categories_is_no_context(self):
        for schema in (Schema("click", (), SCHEMA.categorical), Schema("click", SCHEMA.numerical, ())):
            assert make_model(schema=schema, context="ranked").context == ()

    def test_reaches_into_the_saved_model(self, tmp_path):
        make_model(context=("hour",)).save_pretrained(tmp_path)
        assert CTRModel.from_pretrained(tmp_path).context == ("hour",)

    @pytest.mark.parametrize("embedding", ["daes-gate", "daes-tran"])
    @pytest.mark.parametrize(("rows", "form"), [(5, torch.Tensor), (400, Context)])
    def test_gradients_flow_from_the_modulation_into_the_context_fields_alone(self, embedding, rows, form):
        model = make_model(embedding, context=("device",), embedding_options={"init_std": 1.0})
        model.backbone = OnlyNumbers()
        batch = make_batch(rows)
        forms = []
        model.numerical.register_forward_pre_hook(lambda _, given: forms.append(type(given[1])))
        model(batch).sum().backward()
        assert forms == [form]
        touched = model.categorical.weight.grad.abs().sum(1).nonzero().flatten()
        device = model.categorical.rows(torch.from_numpy(batch.categorical))[:, 1]
        assert torch.equal(touched, device.unique())

    def test_no_gradient_without_field_awareness(self):
        model = make_model("daes")
        model.backbone = OnlyNumbers()
        model(make_batch()).sum().backward()
        assert not model.categorical.weight.grad.any()

    @pytest.mark.parametrize("embedding", ["daes-gate", "daes-tran"])
    @pytest.mark.parametrize("pool", ["mean", "sum", "concat"])
    @pytest.mark.parametrize("options", [{}, {"sparse": True}, {"mode": "vocabulary", "min_count": 2}])
    def test_the_distinct_context_path_equals_the_row_wise_one(self, embedding, pool, options, monkeypatch):
        def gradients():
            model = make_model(
                embedding,
                context=("hour", "city"),
                categorical_options={"init_std": 1.0, **options},
                embedding_options={"context_pool": pool, "init_std": 1.0},
                backbone_options={"dropout": 0.0},
            ).double()
            logits = model(make_batch(400))
            logits.square().sum().backward()
            found = {name: parameter.grad for name, parameter in model.named_parameters()}
            return logits.detach(), {n: g.to_dense() if g.is_sparse else g for n, g in found.items()}

        contexts = []
        original = CTRModel._context
        monkeypatch.setattr(CTRModel, "_context", lambda *args: contexts.append(original(*args)) or contexts[-1])
        shared = gradients()
        assert isinstance(contexts[0], Context)
        assert len(contexts[0].vectors) <= 16
        monkeypatch.setattr(
            CTRModel, "_context", lambda self, ids, vectors: pool_context(vectors[:, self._context_index], pool)
        )
        row_wise = gradients()
        torch.testing.assert_close(shared[0], row_wise[0], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(shared[1], row_wise[1], rtol=1e-9, atol=1e-10)

    def test_row_wise_where_contexts_are_too_many_to_share_or_to_number(self):
        def context(model, rows):
            ids = torch.from_numpy(make_batch(rows).categorical)
            return model._context(ids, model.categorical(ids))

        few, huge = make_model(), make_model(sizes=3_000_000)
        assert isinstance(context(few, 400), Context)
        assert isinstance(context(few, 20), torch.Tensor)
        assert len(huge.categorical.weight) ** 3 >= 2**63
        assert isinstance(context(huge, 400), torch.Tensor)

    @pytest.mark.parametrize(
        ("context", "message"),
        [
            (
                ("city", "town"),
                r"context must name categorical columns of the schema \(city, device, hour\), got town",
            ),
            ("price", "got price"),
            (("city", "city"), "context must name each column once, got city, city"),
        ],
    )
    def test_bad_names(self, context, message):
        with pytest.raises(ValueError, match=message):
            CTRModel(SCHEMA, context=context)

    @pytest.mark.parametrize("count", [0, -1, 1.5])
    def test_bad_count(self, count):
        for make in (CTRModel, lambda *args, **named: CTRModel.from_sample(SCHEMA, make_batch(), **named)):
            with pytest.raises(ValueError, match=f"num_context must be a positive integer, got {count}"):
                make(SCHEMA, num_context=count)


class TestLoss:
    def oracle(self, model, batch):
        """Mean cross-entropy by the formula, a row at a time."""
        with torch.no_grad():
            logits = model(batch).double().numpy()
        weight = np.ones(len(batch)) if batch.weight is None else batch.weight.astype(np.float64)
        total = 0.0
        for logit, label, share in zip(logits, batch.label, weight, strict=True):
            click = 1 / (1 + np.exp(-logit))
            total -= share * np.log(click if label else 1 - click)
        return total / weight.sum()

    @pytest.mark.parametrize("weight", [False, True])
    def test_cross_entropy(self, weight):
        model = make_model()
        train(model, 5, learning_rate=0.1)
        batch = make_batch(30, seed=3, weight=weight)
        assert model.eval().loss(batch).item() == pytest.approx(self.oracle(model, batch), rel=1e-6)

    def test_a_weight_is_worth_so_many_copies(self):
        model = make_model().eval().double()
        batch = make_batch(4)
        weighted = Batch(batch.numerical, batch.categorical, batch.label, np.array([3, 0, 1, 2], np.float32))
        copies = batch[np.array([0, 0, 0, 2, 3, 3])]
        assert model.loss(weighted).item() == pytest.approx(model.loss(copies).item(), rel=1e-12)

    def test_penalty_is_lambda_times_the_sum_of_squares(self):
        model = make_model(l2=0.03)
        expected = 0.03 * sum(value**2 for p in model.parameters() for value in p.detach().double().flatten().tolist())
        assert model.penalty().item() == pytest.approx(expected, rel=1e-5)
        assert model.loss(make_batch()).item() > model.penalty().item() > 0
        assert make_model().penalty().item() == 0

    def test_penalty_is_weight_decay_of_twice_lambda(self):
        def step(l2, decay):
            model = make_model(l2=l2, backbone_options={"dropout": 0.0}).double()
            model.loss(make_batch()).backward()
            torch.optim.SGD(model.parameters(), 0.1, weight_decay=decay).step()
            return dict(model.named_parameters())

        in_the_loss, as_decay = step(0.02, 0.0), step(0.0, 0.04)
        torch.testing.assert_close(in_the_loss, as_decay, rtol=1e-12, atol=1e-14)
        with pytest.raises(AssertionError):
            torch.testing.assert_close(in_the_loss, step(0.0, 0.0), rtol=1e-12, atol=1e-14)

    @pytest.mark.parametrize("embedding", ["daes-gate", "fe"])
    def test_sparse_tables_learn_as_dense_ones_do(self, embedding):
        def run(sparse):
            model = make_model(embedding, categorical_options={"sparse": sparse}, backbone_options={"dropout": 0.0})
            model.double()
            dense, table = model.parameter_groups()
            optimizers = [torch.optim.SGD(group, 0.1) for group in (dense, table) if group]
            for seed in range(3):
                model.zero_grad()
                model.loss(make_batch(400, seed)).backward()
                assert model.categorical.weight.grad.is_sparse == sparse
                for optimizer in optimizers:
                    optimizer.step()
            return dict(model.named_parameters())

        torch.testing.assert_close(run(True), run(False), rtol=1e-10, atol=1e-12)

    def test_parameter_groups_part_all_parameters(self):
        for sparse in (False, True):
            model = make_model(categorical_options={"sparse": sparse})
            dense, table = model.parameter_groups()
            assert [id(parameter) for parameter in table] == [id(model.categorical.weight)] * sparse
            assert {id(p) for p in dense + table} == {id(p) for p in model.parameters()}
            assert len(dense + table) == len(list(model.parameters()))
        dense, table = make_model(schema=Schema("click", SCHEMA.numerical, ())).parameter_groups()
        assert (bool(dense), table) == (True, [])

    def test_labels_are_needed(self):
        batch = make_batch()
        with pytest.raises(ValueError, match="batch must have labels to compute a loss, got None"):
            make_model().loss(Batch(batch.numerical, batch.categorical))

    @pytest.mark.parametrize("l2", [-0.1, float("nan"), float("inf")])
    def test_bad_l2(self, l2):
        with pytest.raises(ValueError, match=f"l2 must be finite and not negative, got {l2}"):
            CTRModel(SCHEMA, l2=l2)


class TestEmptyBatch:
    """A batch without rows has no logits, loss 0 and gradients 0, and teaches nothing."""

    @pytest.mark.parametrize("embedding", METHODS)
    @pytest.mark.parametrize("mode", [True, False])
    def test_no_logits_no_change(self, embedding, mode):
        model = make_model(embedding, "xdeepfm")
        train(model)
        before = state_of(model)
        assert model.train(mode)(make_batch(0)).shape == (0,)
        assert model.predict_proba(make_batch(0)).shape == (0,)
        assert_same_state(state_of(model), before)

    @pytest.mark.parametrize("weight", [False, True])
    def test_loss_is_zero_with_gradients_of_zero(self, weight):
        model = make_model()
        loss = model.loss(make_batch(0, weight=weight))
        loss.backward()
        assert loss.item() == 0
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        assert gradients
        assert not any(gradient.any() for gradient in gradients)

    def test_no_weight_at_all_is_no_loss_either(self):
        batch = make_batch()
        loss = make_model().loss(Batch(batch.numerical, batch.categorical, batch.label, np.zeros(48, np.float32)))
        assert loss.item() == 0


class TestModes:
    @pytest.mark.parametrize("embedding", METHODS)
    def test_eval_changes_nothing(self, embedding, scored):
        model = make_model(embedding, "deepfm", categorical_options={"mode": "vocabulary", "min_count": 1})
        train(model)
        before = state_of(model)
        first = model.predict_proba(scored)
        with torch.no_grad():
            model.eval().loss(make_batch(300, seed=77))
        assert np.array_equal(model.predict_proba(scored), first)
        assert_same_state(state_of(model), before)

    @pytest.mark.parametrize("mode", [True, False])
    def test_predict_proba_leaves_every_mode_as_it_was(self, mode, scored):
        model = make_model(categorical_options={"mode": "vocabulary"}).train(mode)
        model.categorical.vocabulary.train(not mode)
        modes = [part.training for part in model.modules()]
        model.predict_proba(scored)
        assert [part.training for part in model.modules()] == modes
        with pytest.raises(ValueError, match="numerical columns"):
            model.predict_proba(make_batch(schema=Schema("click", ("price",), SCHEMA.categorical)))
        assert [part.training for part in model.modules()] == modes

    def test_predict_proba_is_the_sigmoid_of_the_logits(self, scored):
        model = make_model().eval()
        with torch.no_grad():
            logits = model(scored).double().numpy()
        np.testing.assert_allclose(model.predict_proba(scored), 1 / (1 + np.exp(-logits)), rtol=1e-12)

    def test_a_batch_or_its_tensors(self, scored):
        model = make_model().eval()
        numerical, categorical = torch.from_numpy(scored.numerical), torch.from_numpy(scored.categorical)
        assert torch.equal(model(scored), model(numerical, categorical))

    @pytest.mark.parametrize("embedding", METHODS)
    def test_a_seed_decides_everything(self, embedding):
        first, second, other = (make_model(embedding, seed=seed) for seed in (0, 0, 1))
        for model in (first, second, other):
            train(model)
        assert_same_state(state_of(first), state_of(second))
        assert not torch.equal(first.categorical.weight, other.categorical.weight)

    def test_a_seed_gives_models_of_two_methods_the_same_tables_and_network(self):
        first, second = make_model("daes", embedding_options={"plain": []}), make_model("fe")
        assert torch.equal(first.categorical.weight, second.categorical.weight)
        assert_same_state(state_of(first.backbone), state_of(second.backbone))

    def test_a_copy_is_independent(self, scored):
        model = make_model()
        twin = copy.deepcopy(model)
        before = model.predict_proba(scored)
        train(twin)
        assert np.array_equal(model.predict_proba(scored), before)
        assert not np.array_equal(twin.predict_proba(scored), before)


class TestFromSample:
    @pytest.mark.parametrize("embedding", [name for name, method in METHODS.items() if not method.streaming])
    def test_fits_offline_methods(self, embedding):
        model = make_model(embedding)
        assert not model.needs_fit
        unfitted = CTRModel(SCHEMA, embedding, dim=4)
        assert unfitted.needs_fit
        with pytest.raises(NotFittedError, match="call fit"):
            unfitted(make_batch())
        assert unfitted.fit_embedding(make_batch()) is unfitted
        assert not unfitted.needs_fit
        assert unfitted(make_batch()).shape == (48,)

    def test_does_not_observe_for_the_others(self):
        assert torch.isnan(make_model("daes").numerical.knots).all()

    def test_td_without_labels(self):
        batch = make_batch()
        with pytest.raises(ValueError, match="labels must be given"):
            CTRModel.from_sample(SCHEMA, Batch(batch.numerical, batch.categorical), embedding="td")

    def test_sizes_follow_the_mode(self):
        hashed = CTRModel.from_sample(SCHEMA, make_batch())
        vocabulary = CTRModel.from_sample(SCHEMA, make_batch(), categorical_options={"mode": "vocabulary"})
        assert hashed.sizes == dict.fromkeys(SCHEMA.categorical, 32)
        assert vocabulary.sizes == dict.fromkeys(SCHEMA.categorical, 8)
        assert vocabulary.categorical.vocabulary is not None

    def test_a_vocabulary_saves_what_it_learned(self, tmp_path, scored):
        model = make_model(categorical_options={"mode": "vocabulary", "min_count": 2, "strict": True})
        train(model)
        assert model.categorical.vocabulary.used.tolist() == [3, 3, 3]
        model.save_pretrained(tmp_path)
        reloaded = CTRModel.from_pretrained(tmp_path)
        assert np.array_equal(reloaded.predict_proba(scored), model.predict_proba(scored))
        with pytest.raises(ValueError, match=r"unseen ids in device \(1\)"):
            reloaded.predict_proba(Batch(np.zeros((1, 3), np.float32), np.array([[0, 12345, 0]])))

    def test_sizes_that_are_given_win(self):
        assert make_model(sizes={"city": 77}).sizes == {"city": 77, "device": 32, "hour": 32}
        assert make_model(sizes=np.int64(9)).sizes == dict.fromkeys(SCHEMA.categorical, 9)
        assert CTRModel(SCHEMA, sizes={"hour": 24}).sizes == {"city": DEFAULT_SIZE, "device": DEFAULT_SIZE, "hour": 24}

    def test_options_reach_the_parts(self):
        model = make_model(
            "daes",
            "dcnv2",
            embedding_options={"num_meta": 7},
            backbone_options={"layers": 2, "hidden": (6, 5)},
            categorical_options={"init_std": 0.5},
        )
        assert model.numerical.num_meta == 7
        assert model.backbone.hidden == (6, 5)
        assert model.categorical.init_std == 0.5
        with pytest.raises(TypeError, match="daes has no option 'metas'"):
            make_model("daes", embedding_options={"metas": 7})
        with pytest.raises(TypeError, match="fnn has no option 'layers'"):
            make_model(backbone_options={"layers": 2})
        with pytest.raises(TypeError, match=r"evidence must be .* got 'none'"):
            CTRModel(SCHEMA, evidence="none")

    def test_a_sample_of_other_columns(self):
        for part, schema in (
            (r"3 numerical columns \(price, age, stay\), got 1", Schema("click", ("price",), SCHEMA.categorical)),
            (r"3 categorical columns \(city, device, hour\), got 1", Schema("click", SCHEMA.numerical, ("city",))),
        ):
            with pytest.raises(ValueError, match=f"batch must have {part}"):
                CTRModel.from_sample(SCHEMA, make_batch(schema=schema))

    def test_a_sample_without_rows(self):
        assert CTRModel.from_sample(SCHEMA, make_batch(0)).sizes == dict.fromkeys(SCHEMA.categorical, 1)
        with pytest.raises(ValueError, match="values must have at least one row to fit on, got 0 rows"):
            CTRModel.from_sample(SCHEMA, make_batch(0), embedding="efd")


class TestBadInput:
    @pytest.fixture
    def table(self):
        return pa.table(
            {
                "click": [0, 1, 1],
                "price": [0.5, None, 3.0],
                "age": [30, 40, None],
                "stay": [1.0, 2.0, 3.0],
                "city": ["Bern", None, "Rome"],
                "device": [1, 2, 3],
                "hour": [True, False, None],
            }
        )

    def replace(self, table, name, values):
        return table.set_column(table.schema.get_field_index(name), name, pa.array(values))

    def test_a_good_table_is_scored(self, table):
        assert make_model().predict_proba(batch_from_table(table, SCHEMA)).shape == (3,)

    @pytest.mark.parametrize("column", SCHEMA.columns)
    def test_a_missing_column_is_named(self, table, column):
        with pytest.raises(ValueError, match=f"there is no column '{column}'"):
            batch_from_table(table.drop_columns([column]), SCHEMA)

    @pytest.mark.parametrize(
        ("column", "values", "error", "message"),
        [
            ("price", ["1", "2", "x"], TypeError, "column 'price' must hold numbers; it is of type string"),
            ("price", [[1], [2], [3]], TypeError, "column 'price' must hold numbers"),
            ("device", [[1], [2], [3]], TypeError, "column 'device'"),
            ("click", [0, 1, 2], ValueError, "label column 'click' must hold 0 and 1 only; row 2 is 2"),
            (
                "click",
                [0.0, 0.5, 1.0],
                ValueError,
                "label column 'click' must hold 0 and 1 only; row 1 is 0.5",
            ),
            (
                "click",
                [0, None, 1],
                ValueError,
                "column 'click' must have a value in every row; row 1 is null",
            ),
            ("click", ["no", "yes", "no"], TypeError, "column 'click' must hold numbers"),
        ],
    )
    def test_a_column_of_another_kind_is_named(self, table, column, values, error, message):
        with pytest.raises(error, match=message):
            batch_from_table(self.replace(table, column, values), SCHEMA)

    @pytest.mark.parametrize(
        ("schema", "message"),
        [
            (Schema("click", ("price",), SCHEMA.categorical), r"3 numerical columns \(price, age, stay\), got 1"),
            (
                Schema("click", SCHEMA.numerical, ("a", "b", "c", "d")),
                r"3 categorical .*\(city, device, hour\), got 4",
            ),
            (Schema("click", SCHEMA.numerical, ()), r"3 categorical columns \(city, device, hour\), got 0"),
        ],
    )
    def test_a_batch_of_another_width(self, schema, message):
        model = make_model()
        for call in (model, model.loss, model.predict_proba):
            with pytest.raises(ValueError, match=f"batch must have {message}"):
                call(make_batch(schema=schema))

    def test_too_many_columns_for_a_schema_without_any(self):
        model = make_model(schema=Schema("click", SCHEMA.numerical, ()))
        with pytest.raises(ValueError, match=r"batch must have 0 categorical columns \(none\), got 3"):
            model(make_batch())

    def test_wrong_tensors(self):
        model = make_model()
        numbers, ids = torch.ones(5, 3), torch.ones(5, 3, dtype=torch.int64)
        with pytest.raises(ValueError, match="categorical must be given for the columns city, device, hour, got None"):
            model(numbers)
        with pytest.raises(ValueError, match=r"ids must be int64 of shape \(B, 3\), got torch.int32"):
            model(numbers, ids.int())
        with pytest.raises(ValueError, match=r"ids must be int64 of shape \(B, 3\), got torch.int64 of shape \(5, 2\)"):
            model(numbers, ids[:, :2])
        with pytest.raises(TypeError, match=r"values must be floating point, got torch.int64"):
            model(ids, ids)
        with pytest.raises(ValueError, match=r"values must have shape \(B, 3\), got \(5, 2\)"):
            model(numbers[:, :2], ids)

    def test_wrong_arrays(self):
        batch = make_batch()
        with pytest.raises(TypeError, match="numerical must be a float32 array"):
            Batch(batch.numerical.astype(np.float64), batch.categorical)
        with pytest.raises(TypeError, match="categorical must be a int64 array"):
            Batch(batch.numerical, batch.categorical.astype(np.int32))

    @pytest.mark.parametrize(
        ("sizes", "error", "message"),
        [
            ({"town": 9}, ValueError, "sizes must name categorical columns of the schema, got town"),
            ({"city": 0}, ValueError, "sizes must be positive integers; city has size 0"),
            (-3, ValueError, "sizes must be positive integers; city has size -3"),
            (2.5, TypeError, "sizes must be whole numbers; city has size 2.5"),
            ({"city": "9"}, TypeError, "sizes must be whole numbers; city has size '9'"),
        ],
    )
    def test_bad_sizes(self, sizes, error, message):
        for make in (CTRModel, lambda *args, **named: CTRModel.from_sample(SCHEMA, make_batch(), **named)):
            with pytest.raises(error, match=message):
                make(SCHEMA, sizes=sizes)


class TestCategoricalModule:
    """A module for the categories, given in place of the table that the model would make."""

    def test_it_is_used_and_saved(self, schema, make_rows, tmp_path):
        table = CategoricalEmbedding([40, 9], 8, mode="vocabulary", min_count=2, counters=64)
        model = CTRModel(schema, "fe", "fnn", categorical=table)
        assert model.categorical is table
        assert (model.dim, model.sizes) == (8, {"city": 40, "device": 9})
        model.loss(make_rows(50))
        model.eval().save_pretrained(tmp_path)
        again = CTRModel.from_pretrained(tmp_path)
        assert again.categorical.options == table.options
        np.testing.assert_array_equal(again.predict_proba(make_rows(9)), model.predict_proba(make_rows(9)))

    def test_what_does_not_fit(self, schema):
        with pytest.raises(ValueError, match="categorical must have num_fields=2, got num_fields=1"):
            CTRModel(schema, categorical=CategoricalEmbedding([40], 8))
        with pytest.raises(ValueError, match="dim must be the same for all parts, got 16 and 8"):
            CTRModel(schema, dim=16, categorical=CategoricalEmbedding([40, 9], 8))
        with pytest.raises(ValueError, match="options of the categories must be given to the module itself"):
            CTRModel(schema, categorical=CategoricalEmbedding([40, 9], 8), categorical_options={"sparse": True})


@pytest.mark.parametrize("method", ["daes", "daes-gate", "efd"])
def test_a_whole_model_compiles_without_a_graph_break(make_model, make_rows, method):
    model, rows = make_model(method, "deepfm"), make_rows(40)
    model.fit_embedding(rows)
    batch = model.prepare(rows)
    model.train()
    model.observe(*batch.features)
    with model.without_observing():
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(*batch.features), model(*batch.features))
    compiled = torch.compile(model.eval(), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*batch.features), model(*batch.features))
