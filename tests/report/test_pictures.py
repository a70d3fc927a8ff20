from __future__ import annotations

import copy
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from functools import cache, partial
from itertools import combinations

import pytest
from colours import SIGHTS, contrast, distance
from hypothesis import given
from hypothesis import strategies as st

from cirf.analysis.source import is_functional, read_codes
from cirf.commands.analyze import in_code
from cirf.pictures.canvas import themed
from cirf.pictures.style import STYLES, every_style, style
from cirf.report.plots import codebook_svg, pareto_svg, training_svg

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg):
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


DRAW = {
    "latency": partial(pareto_svg, axis="latency"),
    "tokens": partial(pareto_svg, axis="tokens"),
    "training": training_svg,
    "codebook": codebook_svg,
}


@pytest.fixture(scope="module")
def drawn(data):
    """The pictures of the run by name, each drawn once."""
    return cache(lambda name: DRAW[name](data))


@pytest.mark.parametrize("name", DRAW)
def test_pictures_are_svg_with_a_description_and_the_same_every_time(data, drawn, name):
    svg = drawn(name)
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg" and root.get("role") in ("img", "group") and len(root.get("aria-label")) > 30
    assert root.get("viewBox") and root.get("width") is None
    assert DRAW[name](copy.deepcopy(data)) == svg
    assert "<dc:date>" not in svg and "metadata" not in svg


def test_every_point_is_labelled_once(drawn):
    for axis in ("latency", "tokens"):
        found = texts(drawn(axis))
        for title in ("CIRF", "CoT, untrained", "Direct, fine-tuned", "CoT, fine-tuned"):
            assert found.count(title) == 1


def test_without_times_there_is_no_picture_of_them_and_of_nothing_none(data):
    untimed = copy.deepcopy(data)
    for row in untimed["methods"].values():
        row["latency_mean_s"] = None
    assert pareto_svg(untimed, "latency") is None and pareto_svg(untimed) is not None
    empty = {"methods": {}, "training": {}, "codebook": None}
    assert pareto_svg(empty) is training_svg(empty) is codebook_svg(empty) is None


def test_a_single_method_and_equal_points_can_be_drawn(data):
    one = {"methods": {"cot": data["methods"]["cot"]}, "latency": data["latency"]}
    assert texts(pareto_svg(one)).count("CoT, untrained") == 1
    same = {"methods": {name: data["methods"]["cot"] for name in data["methods"]}, "latency": data["latency"]}
    assert {"CIRF", "CoT, untrained", "CoT, fine-tuned", "Direct, fine-tuned"} <= set(texts(pareto_svg(same)))


def points(svg):
    return [part for part in ElementTree.fromstring(svg).iter(f"{SVG}g") if part.get("class") == "mark point"]


def test_points_show_their_numbers_to_mouse_and_keyboard(data, drawn):
    svg = drawn("latency")
    assert ElementTree.fromstring(svg).get("role") == "group"
    assert sorted(point.get("data-method") for point in points(svg)) == sorted(data["methods"])
    for point in points(svg):
        row = data["methods"][point.get("data-method")]
        summary = point.get("aria-label")
        assert point.get("tabindex") == "0" and point.get("role") == "img" and point.find(f"{SVG}title").text == summary
        low, high = (f"{100 * bound:.1f}" for bound in row["interval"])
        for part in (
            f"{100 * row['accuracy']:.1f} %",
            f"{low} to {high}",
            f"{row['tokens']:.1f} tokens",
            f"{row['latency_mean_s']:.3g} s",
        ):
            assert part in summary
    parts = Counter(part.get("class") for part in ElementTree.fromstring(svg).iter(f"{SVG}g"))
    assert parts["mark bar"] == parts["mark point"] == parts["mark name"] == len(data["methods"])


def test_a_method_may_be_named_with_markup(data):
    named = {'mine"<b>': data["methods"]["cot"]}
    (point,) = points(pareto_svg({"methods": named, "latency": data["latency"]}, "tokens"))
    assert point.get("data-method") == 'mine"<b>' and point.get("aria-label").startswith('mine"<b>: ')


def test_of_many_methods_the_front_and_the_baseline_are_named(data):
    one = data["methods"]["cot"] | {"interval": [0.4, 0.9]}
    many = {f"method_{place}": one | {"tokens": 5.0 + place, "accuracy": 0.7 - place / 100} for place in range(14)}
    many |= {"method_9": one | {"tokens": 90.0, "accuracy": 0.8}, "sft_cot": one | {"tokens": 50.0, "accuracy": 0.6}}
    svg = pareto_svg({"methods": many, "latency": data["latency"]})
    names = [node.get("data-method") for node in ElementTree.fromstring(svg).iter(f"{SVG}g") if node.get("class") == "mark name"]
    assert sorted(names) == ["method_0", "method_9", "sft_cot"] and len(points(svg)) == 15
    other = {**many, "method_9": many["method_9"] | {"same_questions": False}}
    assert ">method_9<" not in pareto_svg({"methods": other, "latency": data["latency"]})


def test_colours_become_the_page_s(drawn):
    svg = drawn("tokens")
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
    names = [*STYLES, *"abcdef"]
    looks = [style(name, names) for name in names]
    assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == len(names)
    names = [*STYLES, *"abcdefghijklmnopqrst"]  # no two look alike, where colours come again
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


# Texts of the page of analyses


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("set `codebook.size` to 8", "set <code>codebook.size</code> to 8"),
        ("`a` and `b c`", "<code>a</code> and <code>b c</code>"),
        ("a ` b `c`", "a ` b <code>c</code>"),
        ("`<b>`", "<code>&lt;b&gt;</code>"),
        ("no code, `` and ` `", "no code, `` and ` `"),
    ],
)
def test_what_is_in_backticks_is_code_and_the_rest_text(text: str, summary: str) -> None:
    assert str(in_code(text)) == summary
