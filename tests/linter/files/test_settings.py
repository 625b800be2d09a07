"""Which rules run for a file: what pyproject.toml says, what the command line says above it, and patterns of files."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from stridewise.config import LintConfig
from stridewise.errors import InputError, UsageError
from stridewise.linter.files.globs import Globs
from stridewise.linter.files.settings import EXCLUDED, Projects, enabled_codes
from stridewise.linter.rules import UNUSED, all_docs, all_rules

ALL = tuple(doc.code for doc in all_docs())
DEFAULT = tuple(doc.code for doc in all_docs() if doc is UNUSED or doc.default)
OFF = next(rule.code for rule in all_rules() if not rule.default)


def without(codes, *names):
    return tuple(code for code in codes if code not in names)


@pytest.mark.parametrize(
    ("layers", "codes"),
    [
        ((LintConfig(),), DEFAULT),
        ((LintConfig(select=("SW3",)),), ALL),
        ((LintConfig(select=("SW301", "SW302")),), ("SW301", "SW302")),
        ((LintConfig(select=(OFF,)),), (OFF,)),
        ((LintConfig(extend_select=(OFF,)),), tuple(sorted((*DEFAULT, OFF)))),
        ((LintConfig(ignore=("SW301",)),), without(DEFAULT, "SW301")),
        ((LintConfig(ignore=("SW3",)),), ()),
        ((LintConfig(ignore=("SW3",), extend_select=("SW301",)),), ("SW301",)),
        ((LintConfig(select=("SW3",), extend_ignore=("SW301",)),), without(ALL, "SW301")),
        ((LintConfig(select=("SW301",), ignore=("SW3",)),), ("SW301",)),
        ((LintConfig(select=("SW301",), ignore=("SW301",)),), ()),
    ],
)
def test_the_longest_beginning_of_a_code_decides(layers, codes):
    assert enabled_codes(*layers) == codes


def test_what_the_command_line_selects_starts_anew():
    project = LintConfig(select=("SW301", "SW302"), ignore=("SW306",))
    assert enabled_codes(project, LintConfig()) == ("SW301", "SW302")
    assert enabled_codes(project, LintConfig(select=("SW306",))) == ("SW306",)
    assert enabled_codes(project, LintConfig(extend_select=("SW306",))) == ("SW301", "SW302", "SW306")
    assert enabled_codes(project, LintConfig(ignore=("SW301",))) == ("SW302",)


def test_settings_name_rules(tmp_path):
    settings = Projects(LintConfig(select=("SW301",))).settings(tmp_path / "a.py")
    assert [rule.code for rule in settings.rules] == ["SW301"]
    assert not settings.unused
    assert Projects().settings(tmp_path / "a.py").unused
    assert Projects().settings(tmp_path / "a.py").codes == without(DEFAULT, UNUSED.code)


# ------------------------------------------------------------------------------------------------------ whose settings


def write(folder, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_the_nearest_file_that_speaks_of_stridewise_counts(tmp_path):
    write(tmp_path, "[tool.stridewise.lint]\nselect = ['SW301']")
    write(tmp_path / "other", "[project]\nname = 'x'")
    write(tmp_path / "own", "[tool.stridewise.lint]\nselect = ['SW302']")
    write(tmp_path / "plain", "[tool.stridewise]\nsteps = 3")
    projects = Projects()
    assert projects.settings(tmp_path / "a.py").codes == ("SW301",)
    assert projects.settings(tmp_path / "other" / "deep" / "a.py").codes == ("SW301",)
    assert projects.settings(tmp_path / "own" / "a.py").codes == ("SW302",)
    assert projects.settings(tmp_path / "plain" / "a.py").codes == without(DEFAULT, UNUSED.code)


def test_files_with_equal_settings_share_them(tmp_path):
    write(tmp_path, "[tool.stridewise.lint.per-file-ignores]\n'tests/*' = ['SW301']")
    projects = Projects()
    assert projects.settings(tmp_path / "a.py") is projects.settings(tmp_path / "b" / "c.py")
    assert projects.settings(tmp_path / "tests" / "a.py") is projects.settings(tmp_path / "tests" / "b" / "c.py")


def test_mistakes_name_where_they_stand(tmp_path):
    write(tmp_path, "[tool.stridewise.lint]\nextend-ignore = ['SW399']")
    with pytest.raises(InputError) as caught:
        Projects().settings(tmp_path / "a.py")
    assert str(caught.value) == (
        f"{tmp_path / 'pyproject.toml'}: lint: extend-ignore names SW399, which no source rule has: `stridewise rule` "
        "lists all codes, and those of source rules begin with SW3"
    )
    for overrides in (
        LintConfig(select=("SW101",)),
        LintConfig(per_file_ignores=(("a.py", ("SW101",)),)),
    ):
        with pytest.raises(UsageError, match="names SW101, which no source rule has"):
            Projects(overrides)


# ---------------------------------------------------------------------------------------------------- per-file-ignores


def test_codes_are_left_out_by_file(tmp_path):
    write(
        tmp_path,
        """
        [tool.stridewise.lint.per-file-ignores]
        "tests/*" = ["SW301"]
        "test_*.py" = ["SW302", "SW300"]
        "!src/**" = ["SW306"]
        """,
    )
    projects = Projects()
    cases = {
        "src/a.py": set(),
        "src/test_a.py": {"SW302", "SW300"},
        "tests/deep/a.py": {"SW301", "SW306"},
        "tests/test_a.py": {"SW300", "SW301", "SW302", "SW306"},
        "more/tests/a.py": {"SW306"},
    }
    assert {name: set(projects.settings(tmp_path / name).ignored) for name in cases} == cases


def test_a_beginning_leaves_out_every_code_that_runs(tmp_path):
    overrides = LintConfig(folder=tmp_path, select=("SW301", "SW302"), per_file_ignores=(("a.py", ("SW3",)),))
    assert Projects(overrides).settings(tmp_path / "a.py").ignored >= {"SW301", "SW302"}
    assert Projects(overrides).settings(tmp_path / "b.py").ignored == frozenset()


def test_the_command_line_replaces_or_adds(tmp_path):
    write(tmp_path, "[tool.stridewise.lint.per-file-ignores]\n'a.py' = ['SW301']")
    given = LintConfig(folder=tmp_path, per_file_ignores=(("a.py", ("SW302",)),))
    added = LintConfig(folder=tmp_path, extend_per_file_ignores=(("a.py", ("SW302",)),))
    assert Projects(given).settings(tmp_path / "a.py").ignored == {"SW302"}
    assert Projects(added).settings(tmp_path / "a.py").ignored == {"SW301", "SW302"}


# ------------------------------------------------------------------------------------------------------------ patterns


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("a.py", "a.py", True),
        ("a.py", "deep/down/a.py", True),
        ("a.py", "aapy", False),
        ("*.py", "deep/a.py", True),
        ("tests/*", "tests/deep/a.py", True),
        ("tests/*", "more/tests/a.py", False),
        ("tests/", "tests", True),
        ("./tests/a.py", "tests/a.py", True),
        ("**/tests/*.py", "tests/a.py", True),
        ("**/tests/*.py", "x/y/tests/a.py", True),
        ("**/tests/*.py", "mytests/a.py", False),
        ("src/**/a.py", "src/a.py", True),
        ("src/**/a.py", "src/x/y/a.py", True),
        ("src/**", "src/x/a.py", True),
        ("a?.py", "ab.py", True),
        ("a?.py", "a.py", False),
        ("[ab].py", "b.py", True),
        ("[!ab].py", "b.py", False),
        ("[a-c].py", "b.py", True),
        ("[]].py", "].py", True),
        ("[.py", "[.py", True),
        ("[z-a].py", "[z-a].py", True),
        ("[^a-b].py", "c.py", True),
        ("{a,b/c}.py", "b/c.py", True),
        ("{a,b}.py", "c.py", False),
        ("{a.py", "{a.py", True),
        ("a+(b).py", "a+(b).py", True),
        ("../beside/*.py", "../beside/a.py", True),
        ("/elsewhere/*.py", "/elsewhere/a.py", True),
    ],
)
def test_patterns(pattern, path, fits):
    folder = "/some/[where]"
    whole = path if path.startswith("/") else f"{folder}/{path}".replace("/[where]/..", "")
    assert Globs([pattern], folder).match(whole, Path(path).name) is fits


def test_excluded_names_are_left_out_anywhere(tmp_path):
    project = Projects().of(str(tmp_path))
    for name in EXCLUDED:
        assert project.excludes(f"{tmp_path}/deep/{name}", name)
    assert not project.excludes(f"{tmp_path}/builder", "builder")


def test_exclude_replaces_and_extend_exclude_adds(tmp_path):
    write(tmp_path, "[tool.stridewise.lint]\nexclude = ['old/*']\nextend-exclude = ['gen']")

    def excluded(overrides):
        project = Projects(replace(overrides, folder=tmp_path)).of(str(tmp_path))
        return [name for name in ("build", "old/a", "gen", "new") if project.excludes(f"{tmp_path}/{name}", name)]

    assert excluded(LintConfig()) == ["old/a", "gen"]
    assert excluded(LintConfig(exclude=("build",))) == ["build", "gen"]
    assert excluded(LintConfig(extend_exclude=("new",))) == ["old/a", "gen", "new"]
    assert excluded(LintConfig(exclude=())) == ["gen"]
