"""The tests of pages fail where a page is wrong."""

from pathlib import Path

import pytest

from .output import agrees
from .page import PageError, blocks
from .running import run_page

FENCE = "```"


def written(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text.replace("'''", FENCE), encoding="utf-8")
    return page


def ran(folder: Path, text: str) -> Path:
    """Where a page ran, without an error."""
    page, work = written(folder, text), folder / "work"
    work.mkdir()
    run_page(page, work)
    return work


def failure(folder: Path, text: str) -> str:
    with pytest.raises(PageError) as error:
        ran(folder, text)
    return str(error.value).replace(str(folder), "")


def test_a_page_runs_from_top_to_bottom_in_one_folder(tmp_path: Path) -> None:
    work = ran(
        tmp_path,
        """# Page
'''python title="src/a.py"
value = 3
'''

'''console
$ python src/a.py && ls
src
$ echo one \\
> two
one two
'''

'''python
from pathlib import Path

here = Path("made")
'''

=== "A tab"

    '''python
    here.write_text("x", encoding="utf-8")
    '''

'''console
$ cat made
x
'''
""",
    )
    assert (work / "src" / "a.py").read_text() == "value = 3\n"


def test_programs_are_those_of_the_tests(tmp_path: Path) -> None:
    ran(
        tmp_path,
        "'''console\n$ command -v stridewise\n…/bin/stridewise\n$ echo $TERM $COLUMNS [$CI]\ndumb 100 []\n'''\n",
    )


def test_output_that_differs_fails_with_both(tmp_path: Path) -> None:
    said = failure(tmp_path, "text\n\n'''console\n$ true\n$ printf 'one\\ntwo\\n'\none\nthree\n'''\n")
    assert said == (
        "/page.md:5: it prints something else\n"
        "  $ printf 'one\\ntwo\\n'\n"
        "--- the page says\n+++ it printed\n@@ -1,2 +1,2 @@\n one\n-three\n+two"
    )


def test_an_exit_code_that_nobody_announced_fails(tmp_path: Path) -> None:
    said = failure(tmp_path, "'''console\n$ echo why; exit 3\n'''\n")
    assert said == "/page.md:2: it exits with 3, not with 0\n  $ echo why; exit 3\nwhy"


def test_an_exit_code_is_as_announced(tmp_path: Path) -> None:
    ran(tmp_path, "<!-- exits with 3 -->\n'''console\n$ exit 3\n'''\n")


def test_announced_and_not_so_fails(tmp_path: Path) -> None:
    assert "exits with 0, not with 1" in failure(tmp_path, "<!-- exits with 1 -->\n'''console\n$ true\n'''\n")


def test_python_that_raises_fails_with_the_line_of_the_page(tmp_path: Path) -> None:
    said = failure(tmp_path, "one\n\n'''python\nx = 1\n\nraise ValueError(x)\n'''\n")
    assert said.startswith("/page.md:3: it raises\nTraceback")
    assert '/page.md", line 6, in <module>' in said
    assert said.endswith("ValueError: 1")


def test_a_warning_is_an_error(tmp_path: Path) -> None:
    text = "'''python\nimport warnings\n\nwarnings.warn('old', DeprecationWarning, stacklevel=1)\n'''\n"
    assert failure(tmp_path, text).endswith("DeprecationWarning: old")


def test_a_process_that_dies_fails(tmp_path: Path) -> None:
    text = "'''python\nimport os\n\nprint('last', flush=True)\nos._exit(4)\n'''\n"
    assert failure(tmp_path, text) == "/page.md:1: the process ended with 4\nlast\n"


def test_what_is_not_run_needs_a_reason(tmp_path: Path) -> None:
    ran(tmp_path, "<!-- not run: it takes a GPU -->\n'''python\nraise ValueError\n'''\n")
    (tmp_path / "work").rmdir()
    said = failure(tmp_path, "<!-- not run: -->\n'''python\nraise ValueError\n'''\n")
    assert said.startswith("/page.md:2: `not run` needs a reason")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<!-- skip: slow -->\n'''python\n'''\n", "/page.md:2: `<!-- skip: slow -->` is no marker"),
        ("<!-- not run: a GPU -->\n\n'''python\n'''\n", "/page.md:1: this marker stands before no block"),
        ("'''\nls\n'''\n", "/page.md:1: a block needs a language"),
        ("'''bash\nls\n'''\n", "/page.md:1: `bash` would not be run"),
        ("'''pythn\n1\n'''\n", "/page.md:1: `pythn` is no language of these pages"),
        ("'''python titel=\"a.py\"\n1\n'''\n", "/page.md:1: no block has the option titel"),
        ("'''python title=\"../a.py\"\n1\n'''\n", '/page.md:1: title="../a.py" is no file in the page\'s folder'),
        ("'''python\n1\n", "/page.md:1: this block is not closed"),
        ("'''console\nls\n'''\n", "/page.md:2: a console block begins with a command"),
        ("<!-- not run: a GPU -->\n'''console\n'''\n", "/page.md:2: a console block without a command"),
    ],
)
def test_a_page_that_is_not_written_as_agreed_fails(tmp_path: Path, text: str, said: str) -> None:
    assert failure(tmp_path, text).startswith(said)


def test_a_block_in_a_longer_fence_is_its_text(tmp_path: Path) -> None:
    page = written(tmp_path, "````text\n'''bash\nls\n'''\n````\n\n'''yaml title=\"a/b.yml\"\nkey: 1\n'''\n")
    first, second = blocks(page)
    assert first.text == "```bash\nls\n```\n"
    assert (second.title, second.line) == ("a/b.yml", 7)


@pytest.mark.parametrize(
    ("wanted", "got"),
    [
        ("3.7 ms, 40 MB, 2.1x", "812 µs, 4 kB, 10.75x"),
        ("0.1 s and 12 B", "45 ms and 1.2 GB"),
        ("-3 %", "+12.5 %"),
        ("a\n  b", "a b\n\n"),
        ("one\n…\nfour", "one\ntwo\nthree\nfour"),
        ("one\n…", "one"),
        ("one … three", "one two three"),
        ("it takes 40 ms\na step", "it takes\n4 ms a step"),
        ("lr 1e-05", "lr 0.001"),
    ],
)
def test_figures_and_line_breaks_may_differ(wanted: str, got: str) -> None:
    assert agrees(wanted, got)


@pytest.mark.parametrize(
    ("wanted", "got"),
    [
        ("SW101", "SW103"),
        ("float32", "float16"),
        ("3 ms", "3 MB"),
        ("two copies", "three copies"),
        ("one", "one two"),
        ("", "one"),
        ("one\n…\nfour", "one\ntwo"),
        ("a ... b", "a, b"),
    ],
)
def test_words_may_not(wanted: str, got: str) -> None:
    assert not agrees(wanted, got)
