"""The numbers that the paper reports, to be printed beside ours."""

from typing import Any

from daes.backbone import BACKBONES


def as_published(backbone: str, *, batch_norm: bool = True, dropout: float = 0.2) -> dict[str, Any]:
    """Arguments of `CTRModel` for a network of the paper: BatchNorm, dropout, ReLU, no evidence.

    A backbone without an MLP has none of these three.

    >>> as_published("fnn")
    {'evidence': False, 'backbone_options': {'batch_norm': True, 'dropout': 0.2, 'slope': 0.0}}
    >>> as_published("lr")
    {'evidence': False, 'backbone_options': {}}
    """
    entry = BACKBONES[backbone]
    network = {"batch_norm": batch_norm, "dropout": dropout, "slope": 0.0}
    known = {name: value for name, value in network.items() if name in entry.options}
    return {"evidence": False, "backbone_options": {**known, **entry.authors}}


PAPER_BACKBONES = ("fnn", "widedeep", "deepfm", "ipnn", "dcnv2", "xdeepfm")
"""The paper's backbones, in its order."""

RESERVOIR_SIZE = 100_000
BATCH_SIZE = 8192
BETA = 0.5
LEARNING_RATES = L2_WEIGHTS = (1e-6, 1e-5, 1e-4, 1e-3)
"""The grid over which learning rate and L2 weight are tuned."""

ARPU_GAIN = 0.02307
"""Change in average revenue per user in the seven-day online experiment, DAES against the production baseline."""
QPS_CHANGE = -0.018
"""Change in queries per second after the deployment."""

DATASETS = {
    "automl": {"categorical": 25, "numerical": 6, "rows": 8_700_000},
    "criteo": {"categorical": 26, "numerical": 13, "rows": 45_800_000},
    "industrial": {"categorical": 20, "numerical": 10, "rows": 87_300_000},
}
"""The paper's table of data sets."""

DATASET_TITLES = {"automl": "AutoML", "criteo": "Criteo", "industrial": "Industrial"}

PROFILED = {"criteo": ("I3", "I5", "I13"), "automl": ("I1", "I2", "I6")}
"""The features whose drift the paper shows."""

ESTIMATION_KL = {"OS": (5.97, 1.95e-1), "RS": (2.46e-4, 4.54e-4), "JRS": (1.60e-4, 5.91e-4)}
ESTIMATION_CALLS = {"RS": (2.93e7, 3.62e7), "JRS": (1.05e6, 1.09e6)}
"""The table of distribution estimators: KL divergence and random calls, each of the features I3 and I5 of Criteo."""

ESTIMATION_LENGTHS = (29_300_000 + RESERVOIR_SIZE, 36_200_000 + RESERVOIR_SIZE)
"""Lengths of the paper's two streams: RS draws once for each value after the first m."""

# AUC and LogLoss of each backbone in turn, then the average rank.
_OVERALL = {
    "automl": {
        "efd": "0.8258 0.0693 0.8284 0.0691 0.8194 0.0698 0.8273 0.0692 0.8255 0.0695 0.8266 0.0696 8.67",
        "ld": "0.8285 0.0692 0.8287 0.0692 0.8250 0.0692 0.8268 0.0693 0.8228 0.0697 0.8217 0.0701 9.00",
        "td": "0.8257 0.0694 0.8261 0.0694 0.8251 0.0696 0.8264 0.0693 0.8268 0.0695 0.8253 0.0695 9.50",
        "multihot": "0.8283 0.0692 0.8279 0.0692 0.8268 0.0693 0.8288 0.0691 0.8195 0.0700 0.8267 0.0696 7.67",
        "youtube": "0.8217 0.0699 0.8226 0.0698 0.8204 0.0700 0.8235 0.0697 0.8221 0.0696 0.8228 0.0695 13.83",
        "dlrm": "0.8251 0.0695 0.8245 0.0696 0.8234 0.0698 0.8239 0.0697 0.8238 0.0693 0.8236 0.0694 12.33",
        "fe": "0.8268 0.0691 0.8262 0.0692 0.8271 0.0691 0.8255 0.0692 0.8213 0.0698 0.8084 0.0714 10.83",
        "autodis": "0.8263 0.0692 0.8292 0.0691 0.8247 0.0694 0.8253 0.0694 0.8238 0.0694 0.8282 0.0693 8.83",
        "deer": "0.8279 0.0692 0.8275 0.0693 0.8271 0.0693 0.8268 0.0694 0.8234 0.0694 0.8261 0.0695 8.17",
        "keyvalue": "0.8262 0.0691 0.8260 0.0691 0.8261 0.0692 0.8261 0.0692 0.8179 0.0699 0.8226 0.0699 11.83",
        "narydis": "0.8287 0.0691 0.8298 0.0690 0.8281 0.0692 0.8295 0.0690 0.8251 0.0693 0.8284 0.0692 4.33",
        "ple": "0.8302 0.0690 0.8317 0.0688 0.8308 0.0689 0.8317 0.0689 0.8253 0.0698 0.8281 0.0692 3.83",
        "dae": "0.8271 0.0693 0.8277 0.0692 0.8251 0.0696 0.8268 0.0694 0.8262 0.0695 0.8256 0.0695 8.17",
        "daes-gate": "0.8327 0.0688 0.8343 0.0686 0.8339 0.0686 0.8347 0.0685 0.8286 0.0692 0.8302 0.0691 1.33",
        "daes-tran": "0.8323 0.0688 0.8332 0.0687 0.8324 0.0687 0.8325 0.0687 0.8288 0.0692 0.8339 0.0687 1.67",
    },
    "criteo": {
        "efd": "0.7858 0.4659 0.7858 0.4664 0.7858 0.4663 0.7859 0.4661 0.7857 0.4665 0.7823 0.4664 7.67",
        "ld": "0.7840 0.4670 0.7839 0.4670 0.7840 0.4669 0.7841 0.4670 0.7836 0.4671 0.7803 0.4715 11.50",
        "td": "0.7835 0.4668 0.7834 0.4674 0.7832 0.4673 0.7831 0.4707 0.7839 0.4669 0.7837 0.4686 12.00",
        "multihot": "0.7861 0.4660 0.7864 0.4662 0.7861 0.4662 0.7860 0.4658 0.7858 0.4665 0.7849 0.4663 5.33",
        "youtube": "0.7835 0.4672 0.7821 0.4681 0.7824 0.4680 0.7829 0.4705 0.7832 0.4673 0.7839 0.4682 13.17",
        "dlrm": "0.7832 0.4672 0.7839 0.4672 0.7831 0.4674 0.7838 0.4695 0.7836 0.4671 0.7834 0.4689 12.67",
        "fe": "0.7848 0.4665 0.7846 0.4667 0.7848 0.4667 0.7846 0.4667 0.7845 0.4668 0.7849 0.4667 9.17",
        "autodis": "0.7864 0.4672 0.7865 0.4665 0.7838 0.4682 0.7843 0.4692 0.7868 0.4668 0.7859 0.4662 6.17",
        "deer": "0.7852 0.4677 0.7859 0.4664 0.7858 0.4662 0.7851 0.4679 0.7856 0.4663 0.7854 0.4670 7.17",
        "keyvalue": "0.7626 0.4836 0.7629 0.4835 0.7627 0.4835 0.7628 0.4833 0.7618 0.4842 0.7610 0.4839 15.00",
        "narydis": "0.7860 0.4669 0.7865 0.4662 0.7858 0.4661 0.7857 0.4663 0.7862 0.4667 0.7855 0.4675 5.67",
        "ple": "0.7877 0.4638 0.7879 0.4640 0.7877 0.4641 0.7876 0.4638 0.7872 0.4645 0.7879 0.4649 3.00",
        "dae": "0.7859 0.4671 0.7847 0.4670 0.7854 0.4665 0.7845 0.4686 0.7851 0.4668 0.7842 0.4680 8.50",
        "daes-gate": "0.7892 0.4625 0.7895 0.4625 0.7894 0.4624 0.7890 0.4633 0.7891 0.4626 0.7894 0.4622 1.50",
        "daes-tran": "0.7893 0.4625 0.7895 0.4622 0.7896 0.4622 0.7895 0.4623 0.7891 0.4625 0.7888 0.4631 1.50",
    },
    "industrial": {
        "efd": "0.7556 0.2657 0.7559 0.2663 0.7559 0.2662 0.7557 0.2620 0.7558 0.2664 0.7522 0.2663 7.67",
        "ld": "0.7534 0.2667 0.7535 0.2672 0.7535 0.2672 0.7532 0.2708 0.7538 0.2668 0.7537 0.2683 12.50",
        "td": "0.7542 0.2674 0.7538 0.2672 0.7541 0.2668 0.7543 0.2672 0.7538 0.2671 0.7502 0.2675 11.67",
        "multihot": "0.7564 0.2662 0.7565 0.2661 0.7562 0.2663 0.7562 0.2656 0.7556 0.2667 0.7547 0.2662 5.67",
        "youtube": "0.7534 0.2671 0.7523 0.2682 0.7523 0.2681 0.7527 0.2705 0.7533 0.2674 0.7538 0.2683 14.00",
        "dlrm": "0.7534 0.2673 0.7538 0.2671 0.7533 0.2675 0.7537 0.2696 0.7537 0.2673 0.7535 0.2686 13.33",
        "fe": "0.7557 0.2673 0.7546 0.2671 0.7553 0.2667 0.7546 0.2687 0.7552 0.2667 0.7541 0.2684 8.50",
        "autodis": "0.7553 0.2676 0.7558 0.2665 0.7557 0.2669 0.7553 0.2678 0.7558 0.2663 0.7555 0.2671 7.00",
        "deer": "0.7565 0.2674 0.7566 0.2666 0.7537 0.2683 0.7545 0.2692 0.7569 0.2669 0.7558 0.2661 6.00",
        "keyvalue": "0.7535 0.2673 0.7538 0.2673 0.7534 0.2677 0.7538 0.2695 0.7538 0.2672 0.7534 0.2688 12.67",
        "narydis": "0.7562 0.2668 0.7564 0.2663 0.7557 0.2663 0.7558 0.2665 0.7562 0.2667 0.7555 0.2674 5.83",
        "ple": "0.7574 0.2647 0.7577 0.2641 0.7576 0.2643 0.7573 0.2648 0.7571 0.2647 0.7579 0.2647 3.00",
        "dae": "0.7544 0.2664 0.7547 0.2666 0.7547 0.2666 0.7545 0.2668 0.7546 0.2669 0.7549 0.2666 9.17",
        "daes-gate": "0.7594 0.2626 0.7596 0.2624 0.7593 0.2623 0.7593 0.2632 0.7593 0.2628 0.7594 0.2622 1.33",
        "daes-tran": "0.7593 0.2626 0.7596 0.2623 0.7597 0.2623 0.7595 0.2621 0.7593 0.2624 0.7587 0.2632 1.67",
    },
}

PAPER_METHODS = tuple(_OVERALL["criteo"])
"""The rows of the main table, in its order, by our names."""

OVERALL: dict[str, dict[str, dict[str, dict[str, float]]]] = {
    dataset: {
        method: {
            backbone: {"auc": float(auc), "logloss": float(logloss)}
            for backbone, auc, logloss in zip(PAPER_BACKBONES, numbers[0:-1:2], numbers[1:-1:2], strict=True)
        }
        for method, row in rows.items()
        for numbers in (row.split(),)
    }
    for dataset, rows in _OVERALL.items()
}
"""The main table: data set → method → backbone → measure → score."""


def counterpart(data: str) -> str | None:
    """The paper's data set that one of ours stands for: our simulated ad stream stands for the industrial one.

    >>> counterpart("adstream"), counterpart("criteo"), counterpart("flights")
    ('industrial', 'criteo', None)
    """
    return {"criteo": "criteo", "automl": "automl", "adstream": "industrial"}.get(data)
