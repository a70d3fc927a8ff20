import copy
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.analysis.style import _SPARE, _STYLES, style
from cirf.analysis.traces import is_functional, read_codes
from cirf.report.plots import codebook_svg, pareto_svg, training_svg

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg):
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize(
    "draw", [lambda d: pareto_svg(d, "latency"), lambda d: pareto_svg(d, "tokens"), training_svg, codebook_svg]
)
def test_pictures_are_svg_with_a_description_and_the_same_every_time(data, draw):
    svg = draw(data)
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg" and root.get("role") == "img" and len(root.get("aria-label")) > 30
    assert root.get("viewBox") and root.get("width") is None
    assert draw(copy.deepcopy(data)) == svg
    assert "<dc:date>" not in svg and "metadata" not in svg


def test_every_point_is_labelled_once(data):
    for axis in ("latency", "tokens"):
        found = texts(pareto_svg(data, axis))
        for title in ("CIRF", "Chain-of-thought", "Direct, fine-tuned", "Chain-of-thought, fine-tuned"):
            assert found.count(title) == 1


def test_auto_falls_back_to_tokens_and_nothing_to_nothing(data):
    assert pareto_svg(data) == pareto_svg(data, "latency")
    untimed = copy.deepcopy(data)
    untimed["methods"]["cot"]["latency_mean_s"] = None
    assert pareto_svg(untimed) == pareto_svg(untimed, "tokens")
    empty = {"methods": {}, "training": {}, "codebook": None}
    assert pareto_svg(empty) is training_svg(empty) is codebook_svg(empty) is None


def test_a_single_method_and_equal_points_can_be_drawn(data):
    one = {"methods": {"cot": data["methods"]["cot"]}, "latency": data["latency"]}
    assert texts(pareto_svg(one)).count("Chain-of-thought") == 1
    same = {"methods": {name: data["methods"]["cot"] for name in data["methods"]}, "latency": data["latency"]}
    assert len(set(texts(pareto_svg(same)))) >= 4


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_colours_can_be_read_on_the_light_card():
    for colour in [*(one.colour for one in _STYLES.values()), *_SPARE]:
        assert 1.05 / (luminance(colour) + 0.05) >= 4.5


def test_methods_differ_in_colour_and_marker():
    names = [*_STYLES, *"abcdef"]
    looks = [style(name, names) for name in names]
    assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == len(names)


def test_codes_are_read_back_out_of_text():
    assert read_codes("<cirf><cirf_016>48<cirf_023>72</cirf>72") == [(16, "48"), (23, "72")]
    assert read_codes("<think><cirf_001><cirf_1002> a b ") == [(1, ""), (1002, "a b")]
    assert read_codes("<cirf>so<cirf_002>3</cirf><cirf_009>") == [(None, "so"), (2, "3")]
    assert read_codes("") == [] and not is_functional("#### 72") and is_functional("<cirf_002>")


@given(st.lists(st.tuples(st.integers(0, 2000), st.text("abc 123", max_size=5)), min_size=1))
def test_reading_undoes_writing(steps):
    text = "<cirf>" + "".join(f"<cirf_{code:03d}>{result}" for code, result in steps) + "</cirf>yes"
    assert read_codes(text) == [(code, result.strip()) for code, result in steps]
