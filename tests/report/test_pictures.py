import copy
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from itertools import combinations

import pytest
from colours import SIGHTS, contrast, distance
from hypothesis import given
from hypothesis import strategies as st

from cirf.analysis.marks import themed
from cirf.analysis.style import _STYLES, every_style, style
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
    assert root.tag == f"{SVG}svg" and root.get("role") in ("img", "group") and len(root.get("aria-label")) > 30
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


def points(svg):
    return [part for part in ElementTree.fromstring(svg).iter(f"{SVG}g") if part.get("class") == "mark point"]


def test_points_tell_their_numbers_to_mouse_and_keyboard(data):
    svg = pareto_svg(data, "latency")
    assert ElementTree.fromstring(svg).get("role") == "group"
    assert [point.get("data-method") for point in points(svg)] == list(data["methods"])
    for point in points(svg):
        row = data["methods"][point.get("data-method")]
        told = point.get("aria-label")
        assert point.get("tabindex") == "0" and point.get("role") == "img" and point.find(f"{SVG}title").text == told
        low, high = (f"{100 * bound:.1f}" for bound in row["interval"])
        for part in (
            f"{100 * row['accuracy']:.1f} %",
            f"{low} to {high}",
            f"{row['tokens']:.1f} tokens",
            f"{row['latency_mean_s']:.3g} s",
        ):
            assert part in told
    parts = Counter(part.get("class") for part in ElementTree.fromstring(svg).iter(f"{SVG}g"))
    assert parts["mark bar"] == parts["mark point"] == parts["mark name"] == len(data["methods"])


def test_a_method_may_be_named_with_markup(data):
    named = {'mine"<b>': data["methods"]["cot"]}
    (point,) = points(pareto_svg({"methods": named, "latency": data["latency"]}, "tokens"))
    assert point.get("data-method") == 'mine"<b>' and point.get("aria-label").startswith('mine"<b>: ')


def test_of_many_methods_each_is_named_beside_its_point_or_below(data):
    one = data["methods"]["cot"]
    many = {f"method_{place}": one | {"tokens": 5.0 + place, "accuracy": 0.9 - place / 100} for place in range(14)}
    svg = pareto_svg({"methods": many, "latency": data["latency"]}, "tokens")
    assert all(svg.count(f">{name}</text>") == 1 for name in many)
    parts = Counter(node.get("class") for node in points(svg))
    assert len(points(svg)) == 14, parts


def test_colours_become_the_page_s(data):
    svg = pareto_svg(data, "tokens")
    found = themed(svg, {style("cot", []).colour: "--mine"})
    assert (
        f"var(--mine, {style('cot', []).colour})" in found and "var(--soft, #565d6d)" in found and "var(--card, #ffffff)" in found
    )
    assert re.sub(r"var\(--\w+, (#\w+)\)", r"\1", found) == svg


def test_colours_can_be_read_on_both_cards():
    for look in every_style():
        assert contrast(look.colour, "#ffffff") >= 4.5 and contrast(look.dark, "#1a1e27") >= 4.5


@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_differ_for_the_colour_blind_too(sight):
    for colours in ([look.colour for look in every_style()], [look.dark for look in every_style()]):
        assert min(distance(one, other, sight) for one, other in combinations(colours, 2)) > 12


def test_methods_differ_in_colour_and_marker():
    names = [*_STYLES, *"abcdef"]
    looks = [style(name, names) for name in names]
    assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == len(names)
    names = [*_STYLES, *"abcdefghijklmnopqrst"]  # no two look alike, where colours come again
    assert len({(style(name, names).colour, style(name, names).marker) for name in names}) == len(names)


def test_codes_are_read_back_out_of_text():
    assert read_codes("<cirf><cirf_016>48<cirf_023>72</cirf>72") == [(16, "48"), (23, "72")]
    assert read_codes("<think><cirf_001><cirf_1002> a b ") == [(1, ""), (1002, "a b")]
    assert read_codes("<cirf>so<cirf_002>3</cirf><cirf_009>") == [(None, "so"), (2, "3")]
    assert read_codes("") == [] and not is_functional("#### 72") and is_functional("<cirf_002>")


@given(st.lists(st.tuples(st.integers(0, 2000), st.text("abc 123", max_size=5)), min_size=1))
def test_reading_undoes_writing(steps):
    text = "<cirf>" + "".join(f"<cirf_{code:03d}>{result}" for code, result in steps) + "</cirf>yes"
    assert read_codes(text) == [(code, result.strip()) for code, result in steps]
