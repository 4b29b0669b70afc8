"""The page in a real headless Chromium, where there is one."""

import re
import shutil

import pytest

from tests.unit.recorded import failed, measured, saved
from tests.unit.report.conftest import NAMES
from tests.unit.shared import needs

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the `dev` extra has it)")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: chromium)")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        # As root, in a container, Chromium has no sandbox of its own.
        running = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def visit(browser):
    """Open a report's page; at the end no console message, no error, no dialog and no request may have come of it."""
    contexts, heard = [], []

    def go(folder, width=1280, unfolded=True, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("dialog", lambda dialog: (heard.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: request.url.startswith("file:") or heard.append(request.url))
        page.goto((folder / "report.html").as_uri())
        if unfolded:
            page.evaluate("for (const folded of document.querySelectorAll('.table > details')) folded.open = true")
        return page

    yield go
    for context in contexts:
        context.close()
    assert heard == []


def column(page, table, name):
    """The cells of the rows that are shown."""
    names = page.locator(f"#{table} thead th").all_inner_texts()
    place = [text.strip(" ▲▼") for text in names].index(name) + 1
    return page.locator(f"#{table} tbody tr:visible > :nth-child({place})").all_inner_texts()


def test_it_opens_without_a_word_and_the_answers_come_first(golden, visit):
    page = visit(golden)
    first = page.locator("main p.lead").first
    assert first.inner_text().startswith("Inference: ")
    assert page.locator("h1").count() == 1
    assert first.bounding_box()["y"] < 400
    assert page.locator("figure .scroll > svg").count() == len(list((golden / "figures").glob("*.svg")))


def test_it_needs_no_network_and_no_other_file(golden, tmp_path, visit):
    shutil.copy(golden / "report.html", tmp_path)
    page = visit(tmp_path, offline=True)
    assert page.locator("figure .scroll > svg").first.bounding_box()["height"] > 100


def test_columns_sort_by_value_both_ways_and_say_so(golden, visit):
    page = visit(golden)
    header = page.locator("#inference-1-t thead th", has_text="p50")
    header.get_by_role("button").click()
    rising = column(page, "inference-1-t", "p50")
    # Nanoseconds, microseconds and milliseconds in the order of time, not of letters; what failed comes last.
    assert rising[:4] == ["28.3 us", "44.5 us", "66.7 us", "97.1 us"]
    assert rising[-2:] == ["400 ms", ""]
    assert header.get_attribute("aria-sort") == "ascending"
    header.get_by_role("button").click()
    falling = column(page, "inference-1-t", "p50")
    assert falling == [*reversed(rising[:-1]), ""]
    assert header.get_attribute("aria-sort") == "descending"
    others = page.locator("#inference-1-t th[aria-sort]:not([aria-sort=none])")
    assert others.count() == 1


def test_what_is_absent_comes_last_either_way(golden, visit):
    page = visit(golden)
    button = page.locator("#inference-1-t thead th", has_text="compile").get_by_role("button")
    for expected in (["88.1 ms", "98.8 ms", "517 ms", "532 ms"], ["532 ms", "517 ms", "98.8 ms", "88.1 ms"]):
        button.click()
        cells = column(page, "inference-1-t", "compile")
        assert cells[:4] == expected
        assert set(cells[4:]) == {"-", ""}


def test_text_sorts_by_the_alphabet_from_the_keyboard(golden, visit):
    page = visit(golden)
    page.locator("#inference-1-t thead th", has_text="lane").get_by_role("button").focus()
    page.keyboard.press("Enter")
    lanes = column(page, "inference-1-t", "lane")
    assert lanes == sorted(lanes)
    page.keyboard.press("Space")
    assert column(page, "inference-1-t", "lane") == sorted(lanes, reverse=True)


def test_rows_filter_by_words_and_the_count_is_told(golden, visit):
    page = visit(golden)
    section = page.locator("#inference-1")
    section.get_by_label("Filter rows").fill("RESNET jax")
    assert column(page, "inference-1-t", "model") == ["resnet50", "resnet50"]
    assert set(column(page, "inference-1-t", "lane")) == {"jax"}
    assert section.locator("output").inner_text() == "2 of 9 rows"
    assert section.locator("output").get_attribute("aria-live") == "polite"
    section.get_by_label("Filter rows").fill("")
    assert len(column(page, "inference-1-t", "model")) == 9


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_horizontal_scroll_on_a_phone(golden, visit, scheme):
    page = visit(golden, width=375, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    page.evaluate("window.scrollTo(100, 0)")
    assert page.evaluate("window.scrollX") == 0


def test_a_figure_that_is_cut_shows_the_shadow_of_its_edge(golden, visit):
    """The shadow is a background, which nothing of the figure may cover."""
    page = visit(golden, width=375)
    cut = "[...document.querySelectorAll('figure .scroll')].filter(each => each.scrollWidth > each.clientWidth)"
    assert page.evaluate(f"{cut}.length")
    ground = "getComputedStyle(each.querySelector('svg [id$=patch_1] path')).fill"
    assert page.evaluate(f"{cut}.map(each => {ground})") == ["none"] * page.evaluate(f"{cut}.length")


def test_light_and_dark_are_different_and_readable(golden, visit):
    def contrast(page, selector):
        """WCAG 2.2's contrast ratio of an element's text and what lies behind it."""
        return page.evaluate(
            """selector => {
                const luminance = colour => {
                    const [r, g, b] = colour.match(/[\\d.]+/g).map(part => part / 255)
                        .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
                    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
                };
                const element = document.querySelector(selector);
                let behind = element;
                while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
                const drawn = element instanceof SVGElement ? "fill" : "color";
                const both = [getComputedStyle(element)[drawn], getComputedStyle(behind).backgroundColor];
                const [low, high] = both.map(luminance).sort((one, other) => one - other);
                return (high + 0.05) / (low + 0.05);
            }""",
            selector,
        )

    grounds = set()
    for scheme in ("light", "dark"):
        page = visit(golden, color_scheme=scheme)
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        for selector in ("p.lead", "caption", "nav a", "td", "thead button", "figure svg text", ".failed td"):
            # Disabled states aside, 4.5 is what WCAG asks of text (criterion 1.4.3).
            assert contrast(page, selector) >= 4.5, (scheme, selector)
    assert len(grounds) == 2


@needs("studies")
def test_published_numbers_look_unlike_ones_own(report, visit):
    out = report(saved(measured("jax", "resnet50", batch_size=8, device="gpu")), formats="html")
    cells = visit(out).locator("#published-paper_inference_h100-1-t tbody tr").first.locator("td.n")
    styles = cells.evaluate_all("cells => cells.map(cell => getComputedStyle(cell).fontStyle)")
    # Batch, then yours and published by turns.
    assert styles == ["normal", *["normal", "italic"] * 4]


@pytest.mark.parametrize("scripts", [True, False])
def test_print_shows_whole_tables_and_no_controls(golden, visit, scripts):
    page = visit(golden, unfolded=False, java_script_enabled=scripts)
    assert not page.locator("#inference-1-t").is_visible()
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert not page.locator("input").first.is_visible()
    assert page.locator("#inference-1-t").is_visible()
    assert page.locator("#inference-1 .scroll").bounding_box()["width"] > 600
    for picture in page.locator("figure .scroll > svg").all():
        # An A4 page on its side, less margins, heading and caption: 150 mm at 96 pixels an inch.
        assert picture.bounding_box()["height"] <= 568
    assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF")


def test_it_needs_no_script_to_be_read(golden, visit):
    page = visit(golden, unfolded=False, java_script_enabled=False)
    assert page.locator(".card").first.is_visible()
    assert page.locator("#figure-1-ratios svg").is_visible()
    page.locator("#inference-1 summary").click()
    assert page.locator("#inference-1-t tbody tr").first.is_visible()


def test_there_is_a_card_for_each_answer(golden, visit):
    page = visit(golden, width=390)
    batches = ", ".join(page.locator(".card .workload").all_inner_texts())
    assert (
        len(re.findall(r"\d+", re.sub(r"resnet50", "", batches)))
        == page.locator("#answers-table-1-t tbody tr").count()
        == 7
    )
    first = page.locator(".card").first
    assert first.locator(".verdict").inner_text().startswith("Inference of ResNet-50")
    box = first.bounding_box()
    assert (box["x"] >= 0, box["x"] + box["width"] <= 390) == (True, True)
    sizes = page.locator(".card p").evaluate_all("all => all.map(one => parseFloat(getComputedStyle(one).fontSize))")
    assert min(sizes) >= 13


@pytest.mark.parametrize("width", [390, 1400])
def test_the_forest_plot_is_in_sight_as_a_whole(golden, visit, width):
    """Names at its left and numbers at its right survive a phone, in letters of at least 9 pixels."""
    page = visit(golden, width=width)
    scroll = page.locator("#figure-1-ratios .scroll")
    assert scroll.evaluate("one => one.scrollWidth <= one.clientWidth")
    edges = scroll.bounding_box()
    for text in scroll.locator("svg text").all():
        box = text.bounding_box()
        assert edges["x"] <= box["x"]
        assert box["x"] + box["width"] <= edges["x"] + edges["width"]
        assert box["height"] >= 9


def test_the_panels_of_a_figure_are_in_sight_on_a_phone(golden, visit):
    page = visit(golden, width=390)
    for figure in page.locator("figure:has(.panels)").all():
        assert figure.locator(".scroll").evaluate("one => one.scrollWidth <= one.clientWidth")
        edges = figure.bounding_box()
        # The legend's words and the panels' titles, letters and marks, as the browser places them.
        for box in (part.bounding_box() for part in figure.locator(".panels use").all()):
            assert edges["x"] <= box["x"]
            assert box["x"] + box["width"] <= edges["x"] + edges["width"]
            assert box["height"] >= 9
    wide = visit(golden, width=1280)
    assert not wide.locator(".panels svg").first.is_visible()


def test_the_first_columns_stay_in_sight(golden, visit):
    def lefts(page):
        scroll = page.locator("#inference-1 .scroll")
        scroll.evaluate("one => one.scrollLeft = one.scrollWidth")
        row = page.locator("#inference-1-t tbody tr").first.locator("th, td")
        return [cell.bounding_box()["x"] - scroll.bounding_box()["x"] for cell in row.all()[:4]]

    wide = visit(golden, width=900)
    assert [left >= 0 for left in lefts(wide)] == [True] * 4
    # On a phone there is room for the model alone.
    phone = lefts(visit(golden, width=390))
    assert (phone[0] >= 0, phone[2] < 0) == (True, True)


def test_text_is_as_large_in_a_figure_of_one_panel_as_in_others(golden, visit):
    page = visit(golden, width=1400)
    scales = page.locator("figure .scroll > svg").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().width / one.viewBox.baseVal.width)"
    )
    assert max(scales) / min(scales) < 1.02


def test_many_answers_are_folded(report, visit, monkeypatch):
    monkeypatch.setattr("fwbench.report.page._CARDS", 1)
    given = [measured(lane, model, mode) for mode, model in _FOLDED for lane in ("torch", "jax")]
    page = visit(report(saved(*given), formats="html"))
    cards = page.locator(".card")
    assert [cards.nth(place).is_visible() for place in range(3)] == [False, False, True]
    page.get_by_text("Inference: 2 answers").click()
    assert cards.first.is_visible()


_FOLDED = (("inference", "mlp"), ("inference", "cnn"), ("train_step", "mlp"))


def test_it_works_for_a_keyboard_and_a_screen_reader(golden, visit):
    page = visit(golden)
    page.keyboard.press("Tab")
    focused = page.locator(":focus")
    assert focused.inner_text() == "Skip to the answers"
    focused.press("Enter")
    assert page.evaluate("document.activeElement.id") == "answers-1"
    table = page.get_by_role("table", name="First is the fastest lane by throughput")
    assert table.count() == 1
    assert table.get_by_role("columnheader", name="first", exact=True).get_by_role("button").count() == 1
    assert table.get_by_role("rowheader", name="resnet50").count() == 2
    picture = page.get_by_role("img", name="Every lane against PyTorch (eager)")
    assert (
        "A line for each of" in page.locator(f"#{picture.get_attribute('aria-labelledby').split()[1]}").text_content()
    )
    for region in page.get_by_role("region").all():
        assert region.get_attribute("tabindex") == "0"
    assert page.locator("table:not(:has(caption)), thead th:not([scope=col]), tbody th:not([scope=row])").count() == 0


def test_identifiers_are_unique(golden, visit):
    page = visit(golden)
    identifiers = page.evaluate("Array.from(document.querySelectorAll('[id]'), element => element.id)")
    assert len(identifiers) == len(set(identifiers))
    targets = page.evaluate("Array.from(document.querySelectorAll('a[href]'), a => a.getAttribute('href').slice(1))")
    assert set(targets) <= set(identifiers)


def test_a_model_called_script_is_text(hostile, visit):
    page = visit(hostile)
    assert page.locator("script").count() == 1
    assert page.locator("img:not(svg *)").count() == 0
    shown = page.locator("#inference-1-t tbody th").all_inner_texts()
    assert NAMES[0] in shown
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_a_hostile_page_fits_a_phone(hostile, visit):
    assert visit(hostile, width=375).evaluate("document.documentElement.scrollWidth") == 375


def test_an_injected_script_would_not_run(report, browser):
    """The policy is the second line of defence: here the first, escaping, is taken away by hand."""
    out = report(saved(measured("torch")), formats="html")
    text = (out / "report.html").read_text()
    (out / "report.html").write_text(text.replace("<main>", "<main><script>document.title = 'mine'</script>"))
    page = browser.new_page()
    page.goto((out / "report.html").as_uri())
    assert page.title().startswith("fwbench report")
    assert page.evaluate("document.documentElement.className") == "js"
    page.close()


def test_what_failed_shows_its_detail_on_demand(report, visit):
    import dataclasses

    from fwbench.record.measurement import Failure

    gone = dataclasses.replace(failed(), failure=Failure("crashed", "killed", "latency", "the last words"))
    page = visit(report(saved(measured("torch"), gone)))
    detail = page.get_by_text("the last words")
    assert not detail.is_visible()
    page.locator("details.failure summary").click()
    assert detail.is_visible()
