import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.export import ExportedProgram

from gpo.exporting.program import export_program, write_program
from gpo.optional import MissingPackageError
from tests.core.exporting.cases import SITES, VARIANTS, Case, make_case
from tests.processes import finish

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("untyped")]

BATCH_SIZES = (1, 2, 7)
FEW = [("waves", "masked", True), ("paper", "torus", False)]
ALL = [(variant, sites, queries) for variant in VARIANTS for sites in SITES for queries in (False, True)]  # fmt: skip
# The paper's operator evaluates queries in the same way wherever its sites lie in a domain; masked
# sites with queries are exported to ONNX below.
SAME = [("paper", sites, True) for sites in ("shuffled", "unstructured", "masked", "masked grid")]
REST = [case for case in ALL if case not in FEW + SAME]
# The paper's signed readout divides by sums near zero, which amplifies rounding a thousandfold.
STABLE = {"waves": {}, "paper": {"readout": "softplus"}}

WITHOUT_GPO = """
import sys
import numpy as np
sys.modules["gpo"] = None  # Whoever imports it now gets an error.
path, *sizes = sys.argv[1:]
if path.endswith(".pt2"):
    import torch
    extra = {"gpo.json": ""}
    program = torch.export.load(path, extra_files=extra).module()
    description = extra["gpo.json"]
    run = lambda frames: program(torch.from_numpy(frames)).numpy()
else:
    import onnxruntime
    session = onnxruntime.InferenceSession(path)
    description = session.get_modelmeta().custom_metadata_map["gpo"]
    run = lambda frames: session.run(["prediction"], {"frames": frames})[0]
    assert "torch" not in sys.modules
for size in sizes:
    np.save(f"{path}-{size}.npy", run(np.load(f"{path}-frames-{size}.npy")))
print(description)
"""


@pytest.fixture(scope="module")
def traced(untyped):
    """Cases with their programs; tracing takes seconds."""
    torch.manual_seed(0)
    cases = [make_case(variant, sites, has_queries=queries) for variant, sites, queries in FEW]
    return [(case, export_program(case.fixed())) for case in cases]


def check_predictions(case: Case, program: ExportedProgram) -> None:
    """The operations are the same: only libraries may round differently by the size of a batch."""
    run = program.module()
    for batch_size in BATCH_SIZES:
        frames = case.frames(batch_size)
        output = run(frames).nan_to_num()
        torch.testing.assert_close(output, case.predict(frames), rtol=1e-6, atol=1e-6)


def check_file(case: Case, path: Path, tolerance: float) -> dict:
    """Compares predictions of a file, run where gpo cannot be imported; returns its description."""
    inputs = {size: case.frames(size) for size in BATCH_SIZES}
    for size, frames in inputs.items():
        np.save(f"{path}-frames-{size}.npy", frames.numpy())
    printed = finish([sys.executable, "-c", WITHOUT_GPO, str(path), *map(str, inputs)])
    for size, frames in inputs.items():
        output = torch.from_numpy(np.load(f"{path}-{size}.npy")).nan_to_num()
        torch.testing.assert_close(output, case.predict(frames), rtol=tolerance, atol=tolerance)
    return json.loads(printed)


def test_a_program_gives_the_predictions_of_the_model_in_any_batch_size(traced):
    for case, program in traced:
        check_predictions(case, program)


@pytest.mark.thorough
@pytest.mark.parametrize(("variant", "sites", "has_queries"), REST)
def test_so_it_does_on_sites_of_every_kind(variant, sites, has_queries):
    case = make_case(variant, sites, has_queries=has_queries, **STABLE[variant])
    check_predictions(case, export_program(case.fixed()))


def test_a_saved_program_runs_without_gpo_and_describes_itself(traced, tmp_path):
    case, program = traced[0]
    write_program(tmp_path / "program.pt2", program, {"lead": 1})
    assert check_file(case, tmp_path / "program.pt2", 1e-6) == {"lead": 1}


@pytest.mark.thorough
@pytest.mark.parametrize(("variant", "sites", "has_queries"), [
    ("waves", "torus", False), ("waves", "patch", True), ("waves", "masked", True),
    ("waves", "masked grid", False), ("paper", "patch", True), ("paper", "masked", True),
])  # fmt: skip
def test_onnxruntime_gives_the_same_predictions_to_rounding(variant, sites, has_queries, tmp_path):
    for name in ("onnxruntime", "onnxscript"):
        pytest.importorskip(name)
    case = make_case(variant, sites, has_queries=has_queries)
    write_program(tmp_path / "program.onnx", export_program(case.fixed()), {"lead": 1})
    assert check_file(case, tmp_path / "program.onnx", 1e-5) == {"lead": 1}


def test_nothing_is_computed_from_constants_alone(traced):
    for _, program in traced:
        depends = {*program.graph_signature.user_inputs}
        for node in program.graph.nodes:
            if node.op == "call_function":
                assert {part.name for part in node.all_input_nodes} & depends
                depends.add(node.name)


def test_a_program_has_what_it_needs_and_no_parameters(traced):
    (case, program), _ = traced
    shapes = [tuple(tensor.shape) for tensor in program.state_dict.values()]
    rows = 2 * case.forecaster.model.num_modes
    # All layers have the same waves, and queries are not analysed.
    assert shapes.count((rows, 40)) == shapes.count((40, rows)) == shapes.count((7, rows)) == 1
    assert (rows, 7) not in shapes
    assert not list(program.parameters())


def test_tracing_leaves_the_model_as_it_was(traced):
    for case, _ in traced:
        assert all(parameter.requires_grad for parameter in case.forecaster.parameters())
        frames = case.frames(2)
        case.forecaster(frames.nan_to_num(), case.coords, weights=case.weights).sum().backward()


def test_frames_of_another_shape_are_refused(traced):
    case, program = traced[0]
    with pytest.raises(Exception, match="frames"):
        program.module()(case.frames(2)[:, :, :-1])


@pytest.mark.parametrize("name", ["program.pth", "there.pt2"])
def test_no_file_is_overwritten_and_none_of_another_kind_is_made(traced, name, tmp_path):
    (tmp_path / "there.pt2").write_text("content")
    with pytest.raises(ValueError, match=r"must end in \.pt2 or \.onnx|there\.pt2 exists"):
        write_program(tmp_path / name, traced[0][1], {})
    assert (tmp_path / "there.pt2").read_text() == "content"
    assert [path.name for path in tmp_path.iterdir()] == ["there.pt2"]


def test_without_the_extra_the_error_names_it(traced, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingPackageError, match=r"needs the package onnxscript.*'gpo\[onnx\]'"):
        write_program(tmp_path / "program.onnx", traced[0][1], {})
    assert not list(tmp_path.iterdir())
