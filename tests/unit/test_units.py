"""What each unit of a downstream is to its upstream, in projects nobody has named."""

from __future__ import annotations

from pathlib import Path

import pytest
from lineage_kit import write_tree

from npu_upgrade.ground.errors import BadInput
from npu_upgrade.lineage.downstream import Downstream
from npu_upgrade.lineage.project import project_of
from npu_upgrade.lineage.units import Relation, UnitLineage, read_units
from npu_upgrade.sources.tree import open_source


def steps(count: int, indent: str = "        ", word: str = "step") -> str:
    return "".join(f"{indent}self.{word}_{number}(batch)\n" for number in range(count))


ENGINE = f"""class Engine:
    def spin(self, batch):
{steps(12)}
    def halt(self):
        return 1
"""
CORE = {
    "core/__init__.py": "",
    "core/motor/__init__.py": "from core.motor.engine import Engine\n",
    "core/motor/engine.py": ENGINE,
    "core/motor/wheel.py": f"class Wheel:\n    def turn(self, batch):\n{steps(10, word='turn')}",
    "core/tools.py": "LIMIT = 3\n\n\ndef measure(batch):\n    return batch\n\n\n"
    f"def grind(self, batch):\n{steps(9, '    ', 'grind')}",
}
SHIP = {
    "ship/__init__.py": "",
    "ship/motor/engine.py": "from core.motor import Engine\n\n\nclass ShipEngine(Engine):\n"
    "    def halt(self):\n        return 2\n",
    "ship/motor/gear.py": "class GpuGear:\n    def shift(self):\n        return 1\n",
    "ship/ports/zpu/zpu_engine.py": "from core.motor import Engine\n\n\nclass ZpuEngine(Engine):\n"
    f"    def spin(self, batch):\n        self.own(batch)\n{steps(12)}\n"
    "    def halt(self):\n        return 3\n\n    def sing(self):\n        return 4\n",
    "ship/ports/zpu/gear.py": "import core.tools\n\n\n"
    "class ZpuGear:\n    def shift(self):\n        return 2\n",
    "ship/ports/zpu/kept.py": f"import core\n\n\ndef grind(self, batch):\n{steps(9, '    ', 'grind')}",
    "ship/ports/zpu/patch.py": "import importlib\n\n"
    "import core.tools\nfrom core.motor import engine as motor\n\n\n"
    "def my_measure(batch):\n    return 2 * batch\n\n\ndef my_spin(self, batch):\n    return batch\n\n\n"
    "def install():\n    core.tools.measure = my_measure\n    setattr(motor.Engine, 'spin', my_spin)\n"
    "    wheel = importlib.import_module('core.motor.wheel')\n    wheel.Wheel.turn = wrap(my_spin)\n\n\n"
    "core.tools.LIMIT = 5\n",
}


@pytest.fixture
def side(tmp_path: Path) -> Downstream:
    ship, core = (
        open_source(f"dir:{write_tree(tmp_path / n, f)}") for n, f in (("ship", SHIP), ("core", CORE))
    )
    return Downstream(ship, {"core": core})


@pytest.fixture
def units(side: Downstream) -> dict[tuple[str, str], UnitLineage]:
    return {(unit.path.rpartition("/")[2], unit.name): unit for unit in read_units(side)}


def test_a_method_copied_from_the_class_it_derives_from(units: dict[tuple[str, str], UnitLineage]) -> None:
    spin = units["zpu_engine.py", "ZpuEngine.spin"]
    assert (spin.relation, spin.upstream) == (Relation.COPY, "core/motor/engine.py:Engine.spin")
    assert (spin.matched, spin.statements) == (13, 14)


def test_overrides_and_own_methods(units: dict[tuple[str, str], UnitLineage]) -> None:
    halt = units["zpu_engine.py", "ZpuEngine.halt"]
    assert (halt.relation, halt.upstream) == (Relation.OVERRIDE, "core/motor/engine.py:Engine.halt")
    assert units["zpu_engine.py", "ZpuEngine.sing"].relation is Relation.OWN
    assert units["zpu_engine.py", "ZpuEngine"].upstream == "core/motor/engine.py:Engine"


def test_what_is_copied_from_elsewhere_is_vendored(units: dict[tuple[str, str], UnitLineage]) -> None:
    grind = units["kept.py", "grind"]
    assert (grind.relation, grind.upstream) == (Relation.VENDORED, "core/tools.py:grind")
    assert units["kept.py", ""].relation is Relation.VENDORED


def test_patches_of_modules_and_classes(units: dict[tuple[str, str], UnitLineage]) -> None:
    measure, spin = units["patch.py", "my_measure"], units["patch.py", "my_spin"]
    assert (measure.relation, measure.upstream) == (Relation.PATCH, "core/tools.py:measure")
    assert spin.patches == ("core/motor/engine.py:Engine.spin", "core/motor/wheel.py:Wheel.turn")
    install = units["patch.py", "install"]
    assert (install.relation, set(install.patches)) == (Relation.PATCH, {measure.upstream, *spin.patches})
    assert "core/tools.py:LIMIT" in units["patch.py", ""].patches


def test_an_assignment_on_an_own_class_is_no_patch(tmp_path: Path) -> None:
    own = "class Lamp:\n    pass\n\n\nLamp.on = print\n"
    ship = open_source(f"dir:{write_tree(tmp_path / 'ship', SHIP | {'ship/lamp.py': own})}")
    core = open_source(f"dir:{write_tree(tmp_path / 'core', CORE)}")
    found = {unit.path: unit for unit in read_units(Downstream(ship, {"core": core})) if not unit.name}
    assert found["ship/lamp.py"].relation is Relation.OWN


def test_the_device_of_an_unknown_project_is_read_from_its_imports(tmp_path: Path) -> None:
    near = {path: text.replace("core", "nearer") for path, text in SHIP.items() if "zpu" in path}
    ship = open_source(f"dir:{write_tree(tmp_path, SHIP | near)}")
    project = project_of(ship, ("nearer", "core"))
    assert (project.package, project.device) == ("ship", "zpu")
    assert project.holds("ship/ports/zpu/gear.py")
    assert not project.holds("ship/motor/engine.py")


def test_of_one_device_the_base_of_a_name_is_the_mirror_not_its_namesake(tmp_path: Path) -> None:
    """A second generation of the runner stands beside the first under the same name."""
    core = {
        "core/__init__.py": "",
        "core/gpu_runner.py": "class GPURunner:\n    pass\n",
        "core/second/runner.py": "class GPURunner:\n    pass\n",
        "core/gpu_helper.py": "class GPUHelper:\n    pass\n",
    }
    ship = {
        "ship/__init__.py": "",
        "ship/runner.py": "from core.gpu_runner import GPURunner\n\n\n"
        "class NPURunner(GPURunner):\n    pass\n",
        "ship/gpu_runner.py": "from core.second.runner import GPURunner\n\n\n"
        "class NPURunner(GPURunner):\n    pass\n",
        "ship/helper.py": "class NPUHelper:\n    pass\n",
    }
    trees = [open_source(f"dir:{write_tree(tmp_path / n, f)}") for n, f in (("ship", ship), ("core", core))]
    side = Downstream(trees[0], {"core": trees[1]})
    mirrors = {}
    for path in ("ship/runner.py", "ship/gpu_runner.py", "ship/helper.py"):
        (cls,) = (one for one in side.program.file(path).classes.values())
        found = side.mirror(cls)
        mirrors[path] = found and found.file.path
    assert mirrors == {
        "ship/runner.py": "core/gpu_runner.py",
        "ship/gpu_runner.py": "core/second/runner.py",
        "ship/helper.py": "core/gpu_helper.py",
    }


def test_a_mirror_is_found_by_its_name_without_the_devices(tmp_path: Path) -> None:
    near = {path: text.replace("core", "nearer") for path, text in SHIP.items() if "zpu" in path}
    trees = {}
    for name in ("nearer", "core"):
        files = {path.replace("core", name): text.replace("core", name) for path, text in CORE.items()}
        trees[name] = open_source(f"dir:{write_tree(tmp_path / name, files)}")
    side = Downstream(open_source(f"dir:{write_tree(tmp_path / 'ship', SHIP | near)}"), trees)
    units = {unit.name: unit for unit in read_units(side) if unit.path == "ship/ports/zpu/gear.py"}
    shift = units["ZpuGear.shift"]
    assert (shift.relation, shift.mirror) == (Relation.MIRROR, "ship/motor/gear.py:GpuGear.shift")
    assert {unit.path for unit in read_units(side)} == {path for path in SHIP if "zpu" in path}
    assert side.runners[0].path == "ship/ports/zpu/zpu_engine.py"
    assert (side.runners[0].gpu_path, side.runners[0].gpu_class) == ("", ""), "ShipEngine has another name"


def test_a_fourth_runner_file_is_found(tmp_path: Path) -> None:
    more = "from ship.motor.engine import ShipEngine\n\n\nclass TurboEngine(ShipEngine):\n    pass\n"
    ship = open_source(f"dir:{write_tree(tmp_path / 'ship', SHIP | {'ship/motor/turbo_engine.py': more})}")
    core = open_source(f"dir:{write_tree(tmp_path / 'core', CORE)}")
    found = {runner.path: runner.class_name for runner in Downstream(ship, {"core": core}).runners}
    assert found["ship/motor/turbo_engine.py"] == "TurboEngine"
    assert len(found) == 3


def test_a_file_that_is_not_python_beside_the_runners_is_refused(tmp_path: Path) -> None:
    broken = {"ship/ports/zpu/other.py": "def broken(:\n"}
    ship = open_source(f"dir:{write_tree(tmp_path / 'ship', SHIP | broken)}")
    core = open_source(f"dir:{write_tree(tmp_path / 'core', CORE)}")
    with pytest.raises(BadInput, match=r"zpu/other\.py .* is not Python"):
        _ = Downstream(ship, {"core": core}).runners


def test_a_tree_without_a_class_on_the_upstream(tmp_path: Path) -> None:
    ship = open_source(f"dir:{write_tree(tmp_path / 'ship', {'ship/__init__.py': '', 'ship/a.py': ''})}")
    core = open_source(f"dir:{write_tree(tmp_path / 'core', CORE)}")
    side = Downstream(ship, {"core": core})
    assert all(unit.relation is Relation.OWN for unit in read_units(side))
    with pytest.raises(BadInput, match="is not a ship tree with classes on core"):
        _ = side.upstream


def test_a_copy_under_another_name_in_another_file_is_found(tmp_path: Path) -> None:
    grind = f"def crush_ship(self, batch):\n{steps(9, '    ', 'grind')}"
    short = f"def tiny(self, batch):\n{steps(3, '    ', 'grind')}"
    other = f"def other(self, batch):\n{steps(3, '    ', 'grind')}{steps(9, '    ', 'own')}"
    ship = write_tree(
        tmp_path / "ship", {"ship/__init__.py": "", "ship/far.py": f"{grind}\n\n{short}\n\n{other}"}
    )
    core = write_tree(tmp_path / "core", CORE)
    found = read_units(Downstream(open_source(f"dir:{ship}"), {"core": open_source(f"dir:{core}")}))
    relations = {unit.name: (unit.relation, unit.upstream, unit.matched) for unit in found if unit.statements}
    assert relations["crush_ship"] == (Relation.VENDORED, "core/tools.py:grind", 9)
    assert relations["tiny"][0] is relations["other"][0] is Relation.OWN


def test_what_stands_beside_the_runners_is_of_the_side_and_has_its_counterparts(tmp_path: Path) -> None:
    core = CORE | {
        "core/motor/worker.py": "class Worker:\n    def work(self):\n        return 1\n",
        "core/motor/unused.py": "class Unused:\n    pass\n",
    }
    nearer = {path.replace("core", "nearer"): text.replace("core", "nearer") for path, text in core.items()}
    ship = {
        "ship/__init__.py": "",
        "ship/motor/gpu_engine.py": "from core.motor import Engine\n\n\nclass GpuEngine(Engine):\n    pass\n",
        "ship/motor/gpu_worker.py": "class GpuWorker:\n    pass\n",
        "ship/ports/zpu/zpu_engine.py": "from nearer.motor import Engine\n\n\n"
        f"class ZpuEngine(Engine):\n    def spin(self, batch):\n{steps(12)}",
        "ship/ports/zpu/zpu_worker.py": "from nearer.motor.worker import Worker\n\n\n"
        "class ZpuWorker(Worker):\n    pass\n",
        "ship/ports/zpu/hints.py": "import nearer.tools\n",
        "ship/lamps/zpu_lamp.py": "import nearer.tools\n\n\nclass ZpuLamp:\n    pass\n",
    }
    trees = {
        name: open_source(f"dir:{write_tree(tmp_path / name, files)}")
        for name, files in (("ship", ship), ("nearer", nearer), ("core", core))
    }
    side = Downstream(trees["ship"], {name: trees[name] for name in ("nearer", "core")})
    (engine,) = side.runners
    assert (engine.path, engine.class_name) == ("ship/ports/zpu/zpu_engine.py", "ZpuEngine")
    assert (engine.gpu_path, engine.gpu_class) == ("ship/motor/gpu_engine.py", "GpuEngine")
    here = "ship/ports/zpu"
    assert sorted(side.runner_files) == [f"{here}/hints.py", engine.path, f"{here}/zpu_worker.py"]
    assert side.upstream_files == ["nearer/motor/engine.py", "nearer/motor/worker.py"]
