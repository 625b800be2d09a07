"""stridewise tells people who use PyTorch what tensor memory layout does to their program."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from stridewise.api import (
        Artefact,
        Compiled,
        Conformance,
        Diff,
        Doctor,
        Fleet,
        Lab,
        LabComparison,
        LintRun,
        LoaderReport,
        Preflight,
        Repair,
        Report,
        analyze,
        analyze_fleet,
        annotate,
        assert_honours_layout,
        assert_layout,
        check_array,
        check_export,
        check_op,
        check_write,
        collate,
        compare_labs,
        compare_ranks,
        diagnose,
        diff,
        doctor,
        expect_layout,
        explain,
        explain_compile,
        fix,
        guard_artefact,
        guard_collectives,
        guard_ddp,
        guard_writes,
        inspect_loader,
        lint,
        load,
        monitor,
        preflight,
        read_lab,
        record,
        register_ops,
        run_lab,
        same_as,
        step,
    )
    from stridewise.integrations.notebook import (
        hide_layout,
        load_ipython_extension,
        show_layout,
        unload_ipython_extension,
    )

__all__ = [
    "Artefact",
    "Compiled",
    "Conformance",
    "Diff",
    "Doctor",
    "Fleet",
    "Lab",
    "LabComparison",
    "LintRun",
    "LoaderReport",
    "Preflight",
    "Repair",
    "Report",
    "__version__",
    "analyze",
    "analyze_fleet",
    "annotate",
    "assert_honours_layout",
    "assert_layout",
    "check_array",
    "check_export",
    "check_op",
    "check_write",
    "collate",
    "compare_labs",
    "compare_ranks",
    "diagnose",
    "diff",
    "doctor",
    "expect_layout",
    "explain",
    "explain_compile",
    "fix",
    "guard_artefact",
    "guard_collectives",
    "guard_ddp",
    "guard_writes",
    "hide_layout",
    "inspect_loader",
    "lint",
    "load",
    "load_ipython_extension",
    "monitor",
    "preflight",
    "read_lab",
    "record",
    "register_ops",
    "run_lab",
    "same_as",
    "show_layout",
    "step",
    "unload_ipython_extension",
]

_NOTEBOOK = ("hide_layout", "load_ipython_extension", "show_layout", "unload_ipython_extension")


if not TYPE_CHECKING:  # a type checker would take any name for one that is there

    def __getattr__(name: str) -> Any:
        """Import what is asked for when it is asked for: `import stridewise` itself loads neither torch nor msgspec."""
        if name in _NOTEBOOK:
            from stridewise.integrations import notebook

            return getattr(notebook, name)
        if name in __all__:
            from stridewise import api

            return getattr(api, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
