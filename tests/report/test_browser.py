"""The pages as a browser shows them: nothing complains, everything is drawn, on wide and narrow, light and dark."""

import re

import pytest

from daes.report import compared_in, write_comparisons, write_report

PLOTS = "document.querySelectorAll('figure[data-plot]').length"
DRAWN = "document.querySelectorAll('figure[data-plot] .js-plotly-plot .cartesianlayer > .subplot').length"
EMPTY = """Array.from(document.querySelectorAll('figure[data-plot]')).filter(figure =>
    !figure.querySelector('.scatterlayer .trace path, .scatterlayer .trace .points, .heatmaplayer image'))
    .map(figure => figure.id)"""
OVERFLOW = """[document.documentElement.scrollWidth - window.innerWidth,
    ...Array.from(document.querySelectorAll('figure .main-svg, figure select, figure .keys, h1, h2, h3, p'),
        element => element.getBoundingClientRect().right - window.innerWidth)]"""
CUT = """Array.from(document.querySelectorAll('figure[data-plot]')).flatMap(figure => {
    const frame = figure.querySelector('.main-svg').getBoundingClientRect();
    return Array.from(figure.querySelectorAll('.main-svg text'), text => [figure.id, text.textContent,
        text.getBoundingClientRect()])
        .filter(([id, words, box]) => words && (box.left < frame.left - 1 || box.right > frame.right + 1))
        .map(([id, words]) => id + ': ' + words);
})"""


@pytest.fixture(scope="session")
def pages(gate_run, hostile_run, one_class_run, short_run, comparison_dir, tmp_path_factory):
    both = [compared_in(comparison_dir, run_dir=gate_run, ceiling={"auc": 0.8, "half_auc": 0.81})]
    return {
        "run": write_report(gate_run),
        "hostile": write_report(hostile_run),
        "one class": write_report(one_class_run),
        "short": write_report(short_run),
        "comparison": write_report(comparison_dir),
        "comparisons": write_comparisons(tmp_path_factory.mktemp("all") / "all.html", "All", "of it", both),
    }


NAMES = ("run", "hostile", "one class", "short", "comparison", "comparisons")
EXPECTED = {"run": 15, "comparison": 3, "comparisons": 13}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [1280, 390])
def test_everything_is_drawn_and_fits_and_nothing_complains(chromium, pages, name, width):
    chromium.open(pages[name], width=width)
    assert chromium.complaints() == []
    plots = chromium.evaluate(PLOTS)
    assert plots == EXPECTED.get(name, plots) > 0
    assert chromium.evaluate(DRAWN) == plots
    assert chromium.evaluate("document.documentElement.dataset.drawn") == str(plots)
    assert chromium.evaluate(EMPTY) == []
    assert [url for url in chromium.requests() if not url.startswith(("file:", "data:", "blob:"))] == []
    assert sum(url.startswith("file:") for url in chromium.requests()) == 1
    assert max(chromium.evaluate(OVERFLOW)) <= 0.5
    assert chromium.evaluate(CUT) == []


@pytest.mark.parametrize(("name", "width"), [("hostile", 320), ("comparisons", 320), ("run", 768)])
def test_nothing_is_wider_than_other_screens(chromium, pages, name, width):
    chromium.open(pages[name], width=width)
    assert max(chromium.evaluate(OVERFLOW)) <= 0.5
    assert chromium.evaluate(CUT) == []


def test_names_from_data_run_nothing(chromium, pages):
    chromium.open(pages["hostile"])
    chromium.evaluate("""(async () => {
        for (const select of document.querySelectorAll('select'))
            for (let place = 0; place < select.options.length; place++) {
                select.selectedIndex = place;
                select.dispatchEvent(new Event('change'));
                await new Promise(done => setTimeout(done));
            }
    })()""")
    assert chromium.complaints() == []
    assert chromium.evaluate("typeof window.hacked") == "undefined"
    assert chromium.evaluate("document.querySelectorAll('figure .main-svg a').length") == 0
    drawn = chromium.evaluate(
        "Array.from(document.querySelectorAll('#drift-map .ytick text'), text => text.textContent)"
    )
    assert drawn[0] == "<script>wind…=1</script>"
    assert any("@c1" in text for text in drawn)


def rgb(text):
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def lightness(chromium, expression):
    return sum(rgb(chromium.evaluate(expression))) / 3


GROUND = "getComputedStyle(document.body).backgroundColor"
INK = "getComputedStyle(document.querySelector('#stream-auc .xtick text')).fill"
LINE = "getComputedStyle(document.querySelector('#stream-auc .scatterlayer .js-line')).stroke"
SCALE = """JSON.stringify(document.querySelector('#drift-map .plot')._fullData[0].colorscale[0][1])"""


def test_dark_and_light_follow_the_reader_at_once(chromium, pages):
    chromium.open(pages["run"], dark=False)
    light = [chromium.evaluate(expression) for expression in (GROUND, INK, LINE, SCALE)]
    assert lightness(chromium, GROUND) > 200 > 100 > lightness(chromium, INK)
    chromium.prefer(dark=True)
    chromium.evaluate("new Promise(done => setTimeout(done, 300))")
    dark = [chromium.evaluate(expression) for expression in (GROUND, INK, LINE, SCALE)]
    assert lightness(chromium, GROUND) < 60 < 150 < lightness(chromium, INK)
    assert all(one != other for one, other in zip(light, dark, strict=True))
    chromium.open(pages["run"], dark=True)
    assert [chromium.evaluate(expression) for expression in (GROUND, INK, LINE, SCALE)] == dark
    assert chromium.complaints() == []


def contrast(one, other):
    """The ratio of WCAG 2."""

    def luminance(colour):
        parts = [part / 255 for part in colour]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_colours_can_be_read(chromium, pages, dark):
    chromium.open(pages["run"], dark=dark)

    def colour(name):
        text = chromium.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()")
        return tuple(int(text[place : place + 2], 16) for place in (1, 3, 5))

    ground = colour("ground")
    assert contrast(colour("ink"), ground) > 12
    # Labels of lines are text, in the colours of the lines.
    for name in ("quiet", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"):
        assert contrast(colour(name), ground) >= 4, name


def test_a_key_hides_its_line(chromium, pages):
    chromium.open(pages["comparison"])
    lines = "document.querySelectorAll('#curves-auc .scatterlayer .trace').length"
    labels = "Array.from(document.querySelectorAll('#curves-auc .annotation text'), text => text.textContent)"
    button = "document.querySelector('#curves-auc .keys button[data-group=\"ple\"]')"
    assert (chromium.evaluate(lines), sorted(chromium.evaluate(labels))) == (3, ["daes", "fe", "ple"])
    chromium.evaluate(f"{button}.click()")
    chromium.evaluate("new Promise(done => setTimeout(done, 100))")
    assert (chromium.evaluate(lines), sorted(chromium.evaluate(labels))) == (2, ["daes", "fe"])
    assert chromium.evaluate(f"{button}.getAttribute('aria-pressed')") == "false"
    chromium.evaluate(f"{button}.click()")
    chromium.evaluate("new Promise(done => setTimeout(done, 100))")
    assert chromium.evaluate(lines) == 3


def test_a_choice_shows_another_feature(chromium, pages):
    chromium.open(pages["run"])
    title = "document.querySelector('#knots-lines .ytitle').textContent"
    names = chromium.evaluate("Array.from(document.querySelectorAll('#knots-lines option'), one => one.textContent)")
    assert len(names) == 10
    assert chromium.evaluate(title) == names[0]
    chromium.evaluate("""{ const select = document.querySelector('#knots-lines select'); select.selectedIndex = 3;
        select.dispatchEvent(new Event('change')); }""")
    chromium.evaluate("new Promise(done => setTimeout(done, 100))")
    assert chromium.evaluate(title) == names[3]


def test_a_turned_phone_gets_plots_of_its_new_width(chromium, pages):
    sizes = """Array.from(document.querySelectorAll('figure .plot'), plot => [plot.clientWidth,
        plot.querySelector('.main-svg').getBoundingClientRect().width,
        plot.querySelectorAll('.colorbar').length - plot.querySelectorAll('.heatmaplayer image').length])"""
    chromium.open(pages["run"], width=390)
    narrow = chromium.evaluate(sizes)
    size = {"width": 844, "height": 390, "deviceScaleFactor": 1, "mobile": True}
    chromium.send("Emulation.setDeviceMetricsOverride", **size)
    chromium.evaluate("new Promise(done => setTimeout(done, 500))")
    wide = chromium.evaluate(sizes)
    for plot, drawn, extra_bars in (*narrow, *wide):
        assert abs(plot - drawn) < 1
        assert extra_bars == 0
    assert min(after[0] - before[0] for before, after in zip(narrow, wide, strict=True)) > 0
    assert chromium.complaints() == []


def test_print_is_light_and_fits_the_paper(chromium, pages):
    chromium.open(pages["run"], dark=True)
    screen = chromium.evaluate("document.querySelector('#drift-map .main-svg').getBoundingClientRect().width")
    chromium.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    chromium.evaluate("new Promise(done => setTimeout(done, 300))")
    assert lightness(chromium, INK) < 100
    paper = 182 / 25.4 * 96
    widths = chromium.evaluate(
        "Array.from(document.querySelectorAll('figure .main-svg'), svg => svg.getBoundingClientRect().width)"
    )
    assert max(widths) <= paper + 1 < screen
    chromium.evaluate("window.dispatchEvent(new Event('afterprint'))")
    chromium.evaluate("new Promise(done => setTimeout(done, 300))")
    assert lightness(chromium, INK) > 150
    pdf = chromium.pdf()
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 50_000
    assert chromium.complaints() == []


def test_a_screenshot_is_not_blank(chromium, pages, tmp_path):
    chromium.open(pages["run"])
    chromium.screenshot(tmp_path / "page.png")
    data = (tmp_path / "page.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) > 100_000


def test_a_column_is_found_by_its_name(chromium, wide_run):
    chromium.open(write_report(wide_run))
    rows = "Array.from(document.querySelectorAll('#features tbody tr')).filter(row => row.offsetParent).length"
    assert chromium.evaluate(rows) == 77
    chromium.evaluate("""{ const input = document.querySelector('#features [data-find]'); input.value = 'Feature_7';
        input.dispatchEvent(new Event('input')); }""")
    assert chromium.evaluate(rows) == 6  # feature_7 and feature_70 to feature_74
    assert chromium.complaints() == []


def test_a_name_leads_to_the_response_of_its_column(chromium, pages):
    chromium.open(pages["run"])
    chromium.evaluate("document.querySelectorAll('#features [data-choose]')[2].click()")
    chosen = "document.querySelector('#response select').selectedOptions[0].textContent"
    name = "document.querySelectorAll('#features [data-choose]')[2].textContent"
    assert chromium.evaluate(chosen) == chromium.evaluate(name)
    assert chromium.evaluate("location.hash") == "#response"


def test_a_command_is_copied_or_selected(chromium, pages):
    chromium.open(pages["run"])
    chromium.evaluate("""(async () => { document.querySelector('[data-copy]').click();
        await new Promise(done => setTimeout(done, 200)); })()""")
    command = chromium.evaluate("document.querySelector('.command code').textContent")
    said = chromium.evaluate("document.querySelector('[data-copy]').textContent")
    selected = chromium.evaluate("getSelection().toString()")
    assert command.startswith("daes ")
    assert said == "Copied" or selected == command


def test_the_menu_follows_the_reader(chromium, pages):
    chromium.open(pages["run"], width=390)
    chromium.evaluate("document.getElementById('knots').scrollIntoView({behavior: 'instant'})")
    chromium.evaluate("new Promise(done => setTimeout(done, 400))")
    box = chromium.evaluate("""(() => { const link = document.querySelector('nav a[aria-current]');
        const box = link.getBoundingClientRect(); return [link.hash, box.left, box.right]; })()""")
    assert box[0] == "#knots"
    assert 0 <= box[1] < box[2] <= 390
