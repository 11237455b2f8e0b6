from daes.backbone import LR


def test_equals_its_formula(slow):
    slow.check(LR(4, 3), lambda p, e, raw: slow.linear(p, e))
