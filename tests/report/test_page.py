import colorsys
import copy
import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest
import synthetic
from colours import contrast
from tables import each_row

from cirf.recipe.load import dump
from cirf.report.data.collect import collect
from cirf.report.page import headline, hue, number, percent, render, seconds, times, tokens
from cirf.report.templates import script_hash

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Checks that tags are closed in order; gathers ids, links and text."""

    def __init__(self, html):
        super().__init__()
        self.open, self.ids, self.links, self.sources, self.tags = [], [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append(tag)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[key] for key in ("href", "xlink:href") if key in found]
        self.sources += [found[key] for key in ("src", "srcset", "data", "action", "background") if key in found]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.slow
def test_the_same_data_gives_the_same_bytes(data, html):
    assert render(copy.deepcopy(data)) == html


def test_nothing_is_fetched(html):
    page = Page(html)
    assert page.sources == [] and page.tags.count("script") == 2
    assert all(link.startswith(("#", "data:,")) for link in page.links)
    assert "@import" not in html and "url(http" not in html
    bare = re.sub(r'xmlns(:\w+)?="[^"]*"', "", html)
    assert "http://" not in bare and "https://" not in bare and "<!DOCTYPE svg" not in html


def test_ids_are_unique_and_links_lead_somewhere(html):
    page = Page(html)
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert {link for link in re.findall(r"url\(#([^)]+)\)", html)} <= set(page.ids)


def test_the_page_shows_the_numbers(data, html):
    text = html.replace("\N{NO-BREAK SPACE}", " ")
    for row in data["methods"].values():
        assert f"<b>{100 * row['accuracy']:.1f} %</b>" in text
    for row in data["codebook"]["codes"]:
        if row["count"]:
            assert row["examples"][0] in html
    assert "no step found" in text and "another answer" in text
    assert "99.2 % of the rationales could be segmented (248)" in text and "0.8 % dropped" in text
    assert "not significant" in text
    assert "learning_rate: 0.001" in text and "a CPU" in text and "loss a target token" in text


def test_every_accuracy_has_its_interval_and_what_was_cut_off_and_not_read(data, html):
    text = html.replace("\N{NO-BREAK SPACE}", " ")
    for row in data["methods"].values():
        summary = f"{100 * row['truncated']:.1f} %</td>", f"{100 * row['unparsed']:.1f} %</td>"
        line = next(part for part in text.split("<tr") if f"<b>{100 * row['accuracy']:.1f} %</b>" in part)
        assert all(share in line for share in summary) and f"{100 * row['interval'][0]:.1f} to" in line
        for task in row["tasks"].values():
            assert f"truncated {100 * task['truncated']:.1f} %, unparsed {100 * task['unparsed']:.1f} %" in text
        low, high = row["mean_of_tasks_interval"]
        assert f"<b>{100 * row['mean_of_tasks']:.1f} %</b><br><small>{100 * low:.0f} to {100 * high:.0f} %<br>truncated" in text


def test_every_time_is_shown_with_what_it_measures(html):
    setting = "transformers 5.23.0, torch 2.13.0, cpu (a CPU), 2 threads, bfloat16"
    for place in ("Speed: one question at a time", 'aria-label="Latency"', 'aria-label="Methods"'):
        assert setting in html.partition(place)[2].partition("</section>")[0][:6000], place
    by_task = html.partition('aria-label="Methods by task"')[2].partition("</section>")[0]
    assert setting in by_task
    picture = html.partition('aria-label="Accuracy against seconds')[2].partition("</figure>")[0]
    assert picture.count(setting) >= 2  # for those who see it and for those who hear it
    assert "Times of the training: torch 2.13.0, a CPU" in html


def test_comparisons_overlap_and_turns_are_reported(data, html):
    text = html.replace("\N{NO-BREAK SPACE}", " ")
    assert "p, corrected" in text and "corrected for 3 comparisons" in text and "McNemar’s exact test" in text
    assert "Near-duplicates" in text and "“the coin lee does not flip the coin is it still heads up”" in text
    assert "The methods take turns at each question" in text


@pytest.mark.usefixtures("sketched")
def test_text_of_models_and_users_is_escaped(data):
    evil = "<script>alert('x')</script><img src=//evil>"
    bad = copy.deepcopy(data)
    bad["name"] = bad["notes"] = evil
    bad["questions"]["rows"][0]["question"] = bad["questions"]["rows"][0]["gold"] = evil
    bad["codebook"]["codes"][0]["examples"] = [evil]
    bad["codebook"]["codes"][0]["label"] = f'"{evil}'
    bad["data"]["dropped"]["segments"] = {evil: 1}
    bad["recipe"]["notes"] = evil
    page = Page(render(bad))
    assert page.tags.count("script") == 2 and "img" not in page.tags


@pytest.mark.usefixtures("sketched")
def test_an_unknown_method_is_shown_by_its_name(data):
    more = copy.deepcopy(data)
    more["methods"]["mine<&>"] = more["methods"]["cot"]
    html = render(more)
    Page(html)
    assert "mine&lt;&amp;&gt;" in html


def test_a_run_without_anything_still_makes_a_page(tmp_path):
    html = render(collect(tmp_path, environment={}))
    Page(html)
    assert "Nothing is evaluated yet" in html


@pytest.mark.usefixtures("sketched")
def test_without_latency_nothing_is_called_faster(data):
    slow = copy.deepcopy(data)
    for row in slow["methods"].values():
        row.update({key: None for key in row if key.startswith("latency_")})
    for pair in slow["comparisons"].values():
        pair["speedup"] = None
    slow["verdict"]["against"]["speedup"] = None
    slow["latency"] = {}
    html = render(slow)
    Page(html)
    shown = html.partition('id="recipe"')[0]  # a method's threshold is called faster
    assert "faster" not in shown and "Accuracy against generated tokens" in html


def spoken(data):
    return headline(data)["text"].replace("\N{NO-BREAK SPACE}", " ")


def test_the_headline_says_in_two_sentences_what_to_use_and_what_it_costs_against_trained_prose(data):
    summary, (used, prose) = spoken(data), (data["methods"][name] for name in ("cirf_full", "sft_cot"))
    assert summary.startswith(f"For now, use CIRF: {100 * used['accuracy']:.1f} % of 80 held-out questions right (95 % interval ")
    assert f"prose trained on the same rows (CoT, fine-tuned, {100 * prose['accuracy']:.1f} %" in summary
    assert "4.0× fewer tokens, is 3.7× faster and its accuracy is" in summary and "significant)." in summary
    assert len(re.findall(r"[a-z)]\. ", summary)) == 1 and "CoT, untrained" not in summary
    notes = headline({**data, "methods": {**data["methods"], "sft_cot": prose | {"truncated": 0.03}}})["notes"]
    assert "may be up to 21 points more accurate" in notes[0] and notes[1].startswith(
        "CoT, fine-tuned: 3.0\N{NO-BREAK SPACE}% of the answers were truncated"
    )


def only(folder, *methods):
    run = synthetic.build(folder)
    (run / "recipe.yaml").write_text(dump(synthetic.recipe().model_copy(update={"methods": methods})))
    return collect(run, environment={})


def test_without_trained_prose_the_headline_says_so(tmp_path):
    summary = spoken(only(tmp_path, "cirf_full", "direct_sft", "cot"))
    assert "This run has no prose trained on the same rows (sft_cot); compared with CoT, untrained" in summary


def test_two_methods_have_a_headline_and_a_picture_with_both_named(tmp_path):
    data = only(tmp_path, "cirf_full", "sft_cot")
    assert list(data["methods"]) == ["cirf_full", "sft_cot"]
    html = render(data)
    Page(html)
    assert "prose trained on the same rows (CoT, fine-tuned" in html and html.count('class="mark name"') == 8


def test_a_lone_method_has_nothing_to_compare_with(data):
    verdict = {**data["verdict"], "against": None, "doubt": None, "warnings": []}
    assert spoken({**data, "verdict": verdict}).endswith("nothing to compare it with: add sft_cot and direct_sft to methods.")


def test_what_qualifies_the_headline_is_said_with_display_names(data):
    verdict = {
        **data["verdict"],
        "use": "cirf_full",
        "best": "sft_cot",
        "doubt": 0.18,
        "traced": "cirf_full",
        "at_once": "direct_sft",
    }
    summary = headline({**data, "verdict": verdict | {"warnings": ["below_direct", "below_majority"]}})
    assert summary["text"].startswith("For now, use CIRF")
    assert summary["notes"][:2] == [
        "CoT, fine-tuned may be up to 18 points more accurate: too few questions to decide, test on more.",
        "CIRF is significantly less accurate than Direct, fine-tuned: its traces do not help here.",
    ]
    none = spoken({**data, "verdict": verdict | {"use": None, "against": None}})
    assert none.startswith("No method can be recommended yet") and "The most accurate is CoT, fine-tuned: " in none


def test_the_table_is_sorted_by_accuracy_and_has_names_and_ids(data, html):
    table = html.partition('aria-label="Methods"')[2].partition("</table>")[0]
    order = re.findall(r'<tr data-method="(\w+)"', table)
    assert order == sorted(data["methods"], key=lambda name: -data["methods"][name]["accuracy"])
    assert all(f'<small class="soft">{name}' in table for name in order)
    assert "CoT, fine-tuned</span>" in table and 'title="fine-tuned to write the rationale, then the answer"' in table


@pytest.mark.usefixtures("sketched")
def test_a_variant_says_what_it_changes(data):
    variants = {
        "odd": {"method": "pause", "settings": {"n": 10}},
        "ours": {"method": "cirf_full", "settings": {"subjects": True, "start": "sft_cot"}},
    }
    more = copy.deepcopy(data)
    more["recipe"]["variants"] = variants
    more["methods"] |= {name: data["methods"]["cot"] for name in variants}
    html = render(more)
    assert 'title="Pause tokens (pause): n = 10"><i' in html and "</i>odd</span>" in html
    assert "</i>CIRF with subjects, after CoT</span>" in html


@each_row(
    ("ratio", "text"),
    [(7.94, "7.9× faster"), (0.5, "2.0× slower"), (1.02, "no faster"), (412.3, "412× faster"), (None, None), (0, None)],
)
def test_ratios_in_words(ratio, text):
    assert times(ratio, "faster", "slower") == text


def test_numbers_in_words():
    assert (seconds(0.0381), seconds(1.934), seconds(250), seconds(7500)) == ("38\xa0ms", "1.93\xa0s", "4 min 10 s", "2 h 5 min")
    assert (percent(0.7825), percent(None), percent(1, 0)) == ("78.2\xa0%", "–", "100\xa0%")
    assert (number(1404), number(0.00123), number(12.34), number(None), number(12345.6)) == (
        "1,404",
        "0.00123",
        "12.3",
        "–",
        "12,346",
    )
    assert (tokens(14.82), tokens(132.04)) == ("14.8", "132")


def test_neighbouring_codes_have_distant_hues():
    assert all(min(abs(hue(i) - hue(i + 1)), 360 - abs(hue(i) - hue(i + 1))) > 90 for i in range(256))


def test_the_page_allows_its_own_script_and_no_other(html):
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1]
    script = html.rpartition("<script>")[2].partition("</script>")[0]
    assert f"script-src '{script_hash(script)}';" in policy and policy.startswith("default-src 'none';")
    assert not re.search(r"\b(eval|innerHTML|outerHTML|insertAdjacentHTML|document\.write|fetch|XMLHttpRequest|import)\b", script)
    assert script.startswith('"use strict";')


def declared(css, block):
    return dict(re.findall(r"(--[\w-]+): ([^;]+);", css.partition(block)[2].partition("}")[0]))


def hsl(hue, saturation, lightness):
    saturation, lightness = float(saturation.rstrip("%")) / 100, float(lightness.rstrip("%")) / 100
    parts = (round(255 * part) for part in colorsys.hls_to_rgb(hue / 360, lightness, saturation))
    return "#" + "".join(f"{part:02x}" for part in parts)


@pytest.mark.parametrize("scheme", [":root {", "prefers-color-scheme: dark) {\n  :root {"], ids=["light", "dark"])
def test_text_can_be_read_in_both_schemes(scheme):
    css = files("cirf.report").joinpath("page.css").read_text(encoding="utf-8")
    found = {
        name: f"#{value[1] * 2}{value[2] * 2}{value[3] * 2}" if len(value) == 4 else value
        for name, value in declared(css, scheme).items()
    }
    for ground in ("--ground", "--card", "--tint", "--code"):
        for ink in ("--ink", "--soft", "--accent", "--yes", "--no", "--none"):
            assert contrast(found[ink], found[ground]) >= 4.5, (ink, ground)
        assert contrast(found["--edge"], found[ground]) >= 2.9, ground  # of a field: 3 is asked for, on cards and the ground
    assert contrast(found["--card"], found["--ink"]) >= 4.5  # the tooltip
    for degrees in range(0, 360, 5):
        assert contrast(found["--chip-ink"], hsl(degrees, found["--chip-s"], found["--chip-l"])) >= 4.5, degrees
