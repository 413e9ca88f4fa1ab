import pytest

from gpo import count_parameters, preset
from gpo.cli import main


def test_presets_prints_every_count(capsys):
    main(["presets"])
    printed = capsys.readouterr().out
    for name in ("ns2d", "ns3d", "era5-temp", "era5-wind", "carra", "airfoil", "turbulent", "planetswe"):  # fmt: skip
        assert name in printed
        assert f"{count_parameters(preset(name)):,}" in printed


def test_an_unknown_command_lists_the_known(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["prests"])
    assert stopped.value.code == 2
    assert "presets" in capsys.readouterr().err
