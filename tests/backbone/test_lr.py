from daes.backbone.lr import LR


def test_equals_its_formula(slow):
    slow.check(LR(4, 3), lambda p, e, plain: slow.linear(p, e))
