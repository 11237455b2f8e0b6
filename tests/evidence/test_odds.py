import warnings

import numpy as np

from daes.evidence.odds import NO_CUT, cut_points


def test_the_smallest_number_has_a_cut_but_none_below():
    values = np.array([-NO_CUT, -NO_CUT, -NO_CUT, 1, 2], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cuts = cut_points(values, 4)
    assert cuts.tolist() == [np.float32(-NO_CUT), 1.0, np.float32(NO_CUT)]
