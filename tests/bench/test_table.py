import pytest

from gpo_bench.table import Entry, Table


@pytest.fixture
def table():
    result = Table("Errors", "model", ("ns2d", "ns2d (paper)"), unranked=frozenset(("persistence", "ns2d (paper)")))  # fmt: skip
    result.add("gpo", [Entry(0.02, 0.001, "1,000"), Entry(0.03)])
    result.add("fno", [Entry(0.03), Entry(0.01)])
    result.add("c_no", [Entry(note="needs a grid"), Entry()])
    result.add("persistence", [Entry(0.01), Entry()])
    result.notes.append("Below 5 % of it.")
    return result


def test_best_and_second_are_marked_among_models_only(table):
    assert table.ranks(0) == {"gpo": 1, "fno": 2}
    assert table.ranks(1) == {}


def test_markdown_has_bold_and_italics(table):
    lines = table.markdown().splitlines()
    assert lines[2] == "| model | ns2d | ns2d (paper) |"
    assert lines[4] == "| gpo | **0.02 ± 0.001 (1,000)** | 0.03 |"
    assert lines[5] == "| fno | *0.03* | 0.01 |"
    assert lines[6] == "| c_no | - (needs a grid) | - |"
    assert lines[7] == "| persistence | 0.01 | - |"


def test_latex_escapes_what_it_must(table):
    text = table.latex()
    assert r"gpo & \textbf{0.02 $\pm$ 0.001 (1,000)} & 0.03 \\" in text
    assert r"c\_no & - (needs a grid) & - \\" in text
    assert r"fno & \underline{0.03} & 0.01 \\" in text


def test_html_marks_and_escapes(table):
    table.add("<b>", [Entry(1.0), Entry()])
    text = table.html()
    assert "<td><strong>0.02 ± 0.001 (1,000)</strong></td>" in text
    assert "<td>&lt;b&gt;</td>" in text


def test_a_row_of_the_wrong_length_is_refused(table):
    with pytest.raises(
        ValueError, match="`entries` must have one entry for each of 2 columns, got 1"
    ):
        table.add("lno", [Entry()])


def test_whole_numbers_are_spelled_out():
    assert Entry(1_598_257).text == "1,598,257"
    assert Entry(0.0123456).text == "0.0123"
