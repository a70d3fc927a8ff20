"""Every analysis on real runs in miniature."""

import json


def test_all_of_a_sweep(analysed):
    told = json.loads((analysed / "analysis.json").read_text())
    print(told["left_out"], list(told["analyses"]))
    assert 0
