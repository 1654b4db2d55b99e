"""The table of docs/compared.md is the one that the script found, and what is installed here still says the same."""

import importlib.metadata
import re
import sys

import pytest

from tests.compared import FEATURES, OURS, __main__, peers, results, updated
from tests.compared.peers import PEERS, Peer
from tests.helpers.commands import ROOT

PAGE = (ROOT / "docs" / "compared.md").read_text(encoding="utf-8")
WITHOUT_SPARK = [peers.Ranx, peers.IrMeasures, peers.PytrecEval, peers.Sklearn]


def test_page_holds_the_table_of_what_was_found() -> None:
    assert updated(PAGE) == PAGE
    # It says which systems the tests try again.
    (named,) = re.findall(r"systems\s+again\s+\(([^)]*)\)", PAGE)
    assert named.split(", ") == [peer.title for peer in WITHOUT_SPARK]


def test_every_system_has_a_cell_for_every_feature() -> None:
    result = results()
    assert [*result] == [OURS, *(peer.title for peer in PEERS)]
    for of in result.values():
        assert [*of["cells"]] == [feature.name for feature in FEATURES]
        assert all(re.fullmatch("(yes|no|partly)(: .+)?", cell) for cell in of["cells"].values())


def test_versions_are_those_that_the_environments_pin() -> None:
    result = results()
    for peer in PEERS:
        of_its_own = __main__.ENVIRONMENTS.get(peer.__name__)
        path = f"tests/benchmarks/peers/{of_its_own}.txt" if of_its_own else "constraints/py311.txt"
        pins = (ROOT / path).read_text().lower().replace("_", "-")
        assert f"{peer.package.lower().replace('_', '-')}=={result[peer.title]['version']}\n" in pins


@pytest.mark.slow
@pytest.mark.parametrize("peer", WITHOUT_SPARK, ids=lambda peer: peer.title)
def test_cells_are_what_the_installed_system_does(peer: type[Peer]) -> None:
    recorded = results()[peer.title]
    if importlib.metadata.version(peer.package) != recorded["version"]:
        pytest.skip(f"{peer.title} {recorded['version']} is not installed")
    assert __main__.proved(peer.__name__, sys.executable) == {peer.title: recorded}


class Grown(Peer):
    """A system whose new version has interleaving, and one metric."""

    title, package, modules = "grown", "pytest", ("string",)

    def metrics(self) -> set[str]:
        return {"team_draft_interleaving"}


def test_new_name_that_looks_like_a_feature_is_no_silent_no() -> None:
    assert Grown().cell("changed", "kendall") == "no"
    with pytest.raises(ValueError, match="team_draft_interleaving"):
        Grown().cell("interleaving", "interleav")
