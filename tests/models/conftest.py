import pytest
from networks import write_network


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """The folder of a tiny BERT."""
    return write_network(tmp_path_factory.mktemp("network") / "bert")
