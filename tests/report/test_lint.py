"""What people read of `lint`, held by snapshots; and what holds for every run: it fits, is plain, and is inert."""

import io
import json

import msgspec
import pytest
from rich.cells import cell_len
from rich.text import Text

from stridewise.findings import Finding
from stridewise.report import lint
from stridewise.results.lint import LintRun

from . import lints


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLORTERM", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def rendered(run, out=None, **options):
    out = io.StringIO() if out is None else out
    lint.render(run, out, **{"read": lints.read, **options})
    return out.getvalue()


@pytest.mark.parametrize("name", lints.ALL)
def test_text(name, snapshot):
    assert rendered(lints.ALL[name]) == snapshot


@pytest.mark.parametrize("name", ["several", "copied", "unread", "clean", "hostile"])
def test_statistics(name, snapshot):
    assert rendered(lints.ALL[name], statistics=True) == snapshot


@pytest.mark.parametrize("name", ["safeties", "hostile", "proposed"])
def test_colours(name, snapshot):
    assert rendered(lints.ALL[name], Tty()) == snapshot


@pytest.mark.parametrize("statistics", [False, True])
@pytest.mark.parametrize("width", [100, 80])
@pytest.mark.parametrize("name", [name for name in lints.ALL if name != "proposed"])
def test_lines_fit_and_are_plain_text(name, width, statistics):
    places = {lint._place(finding.site) for finding in lints.ALL[name].findings}
    for line in rendered(lints.ALL[name], width=width, statistics=statistics).split("\n"):
        assert cell_len(line) <= width or line in places  # a place stays whole, or no editor opens it
        assert line.isprintable()
        assert line == line.rstrip()


@pytest.mark.parametrize("name", ["safeties", "copied", "odd", "wrote"])
def test_colour_changes_no_word(name):
    plain = rendered(lints.ALL[name])
    coloured = rendered(lints.ALL[name], Tty())
    assert "\x1b[" in coloured
    assert "\x1b" not in plain
    assert Text.from_ansi(coloured).plain.split() == plain.split()


@pytest.mark.parametrize("format", ["text", "json", "sarif", "junit"])
@pytest.mark.parametrize("statistics", [False, True])
def test_nobody_obeys_hostile_text(format, statistics):
    for out in (io.StringIO(), Tty()):
        text = rendered(lints.HOSTILE, out, format=format, statistics=statistics)
        assert "\x1b]" not in text
        assert "\x1b[31m[red]" not in text
        assert "\u202e" not in text
        assert not [line for line in text.splitlines() if line.strip().startswith("::") or "##[" in line]


def test_a_clean_run_is_one_sentence():
    assert rendered(lints.CLEAN) == "No layout problems in 120 files (33,204 lines).\n"
    assert rendered(LintRun((), files=1, lines=1)) == "No layout problems in 1 file (1 line).\n"
    assert "\x1b[1;32mNo layout" in rendered(lints.CLEAN, Tty())


def test_a_run_that_read_nothing_is_not_called_clean():
    assert rendered(lints.NOTHING) == "No file was linted.\n"
    nothing = msgspec.structs.replace(lints.UNREAD, files=0, lines=0)
    assert rendered(nothing).endswith("2 files could not be read.\n")
    for run in (lints.NOTHING, nothing, lints.UNREAD):
        assert "\x1b[1;32m" not in rendered(run, Tty())


def test_equal_findings_are_shown_once_and_named_elsewhere():
    text = rendered(lints.COPIED)
    assert text.count("SW314 fragile-view (warning)") == 1
    assert "in 40 more places: models/net01/modeling_net01.py:10, " in text
    assert "and 34 more, all in --format json" in " ".join(text.split())


def test_lines_of_one_file_stand_together():
    views = [lints.view(), *(msgspec.structs.replace(lints.view("models/a.py"), site=site) for site in _sites(3))]
    assert "in 3 more places: models/a.py:20 :21 :22\n" in rendered(lints.run(*views))


def _sites(count):
    site = lints.view("models/a.py").site
    return [msgspec.structs.replace(site, line=20 + at, end_line=20 + at) for at in range(count)]


@pytest.mark.parametrize("content", [None, b"\n" + lints.MODEL])
def test_a_file_that_changed_shows_what_to_write(content):
    text = rendered(lints.run(lints.view()), read=lambda _: content)
    assert "  fix     x.flatten(1)  (safe, applied by --fix)\n" in text
    deleting = lints.finding("SW301", "x.contiguous()", replacement="")
    assert "  fix     delete it  (safe, applied by --fix)\n" in rendered(lints.run(deleting), read=lambda _: content)


def test_files_are_read_from_the_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_bytes(lints.MODEL)
    assert "return self.head(x.flatten(1))" in rendered(lints.run(lints.view()), read=None)


@pytest.mark.parametrize("diff", [lints.DIFF, lints.DIFF.replace("\n", "\r\n")])
def test_a_proposed_diff_can_be_applied(diff):
    assert rendered(msgspec.structs.replace(lints.PROPOSED, diff=diff)).startswith(diff)


ODD_DIFF = "--- a/::error::.py\n+\tx\x1b[31m\u202e\r\n \xa0::error::\u3000\n-##[error]\n+x[::step]\xa0\x0c\n"


def test_a_diff_is_written_as_it_is(monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")  # which reads standard output alone
    run = msgspec.structs.replace(lints.PROPOSED, diff=ODD_DIFF)
    assert rendered(run).startswith(ODD_DIFF)
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace", newline="\r\n")
    lint.render(run, out, read=lints.read)
    out.flush()
    assert out.buffer.getvalue().startswith(ODD_DIFF.encode())


@pytest.mark.parametrize("plain", [True, False])
def test_nothing_in_a_diff_is_obeyed_by_a_terminal(monkeypatch, plain):
    if plain:
        monkeypatch.setenv("NO_COLOR", "1")
    text = rendered(msgspec.structs.replace(lints.PROPOSED, diff=ODD_DIFF), Tty())
    assert "x\\x1b[31m\\u202e" in text
    assert "\u202e" not in text
    assert "\x1b[31m\u202e" not in text


def test_a_runner_obeys_nothing_in_a_diff(monkeypatch):
    run = msgspec.structs.replace(lints.PROPOSED, diff=ODD_DIFF)
    for actions in ("", "true"):
        monkeypatch.setenv("GITHUB_ACTIONS", actions)
        out = io.StringIO()
        monkeypatch.setattr("sys.stdout", out)
        lines = rendered(run, out).split("\n")
        assert lines[:2] + lines[4:5] == [*ODD_DIFF.split("\n")[:2], "+x[::step]\xa0\x0c"]
        obeyed = [r" \xa0:\:error::\u3000", "-#\\#[error]"]
        assert lines[2:4] == (obeyed if actions else ODD_DIFF.split("\n")[2:4])


def test_json_has_everything_and_reads_back():
    text = rendered(lints.COPIED, format="json")
    assert text.isascii()
    assert msgspec.json.decode(text, type=LintRun) == lints.COPIED
    assert json.loads(text)["schema_version"] == 1
    (edit,) = msgspec.json.decode(text, type=LintRun).findings[0].edits
    assert lints.MODEL[edit.span[0] : edit.span[1]] == b"x.contiguous()"


def test_statistics_as_json():
    fields = json.loads(rendered(lints.COPIED, format="json", statistics=True))
    assert fields["statistics"] == [
        {"code": "SW314", "title": "fragile-view", "count": 41, "fixes": {"safe": 41}},
        {"code": "SW301", "title": "discarded-result", "count": 2, "fixes": {"unsafe": 1}},
    ]
    assert [len(group["findings"]) for group in fields["repeated"]] == [2, 41]
    assert (fields["files"], fields["lines"], fields["suppressed"]) == (120, 33_204, 3)


def test_a_cost_is_shown_only_if_it_was_measured():
    measured, plain = rendered(lints.run(lints.MEASURED, share_of="step time")), rendered(lints.run(lints.view()))
    assert "  cost    12 copies, 38 MB, 2.3 ms a step: 4.1 % of step time\n" in measured
    assert "  cost  " not in plain


def test_a_finding_without_a_place_is_shown():
    bare = msgspec.structs.replace(lints.view(), site=msgspec.structs.replace(lints.view().site, line=None, text=None))
    assert isinstance(bare, Finding)
    assert rendered(lints.run(bare)).startswith("model.py SW314 fragile-view (warning)\n")
