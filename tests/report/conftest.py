import pytest
import synthetic
import tinyrun

from cirf.report.data.collect import collect
from cirf.report.page import render

ENVIRONMENT = {"cirf": "0.1.0", "python": "3.11.2", "cpu": "a CPU", "cores": 2, "packages": {"torch": "2.13.0"}}


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished run's folder; only to be read."""
    return synthetic.build(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="session")
def data(finished):
    """The run's report data."""
    return collect(finished, environment=ENVIRONMENT)


@pytest.fixture(scope="session")
def html(data):
    """The run's page."""
    return render(data)


@pytest.fixture
def sketched():
    """Pictures are empty: no test that asks for this looks at any."""
    with tinyrun.sketched():
        yield


@pytest.fixture
def run(tmp_path):
    """A finished run's folder to change."""
    return synthetic.build(tmp_path / "run", train=10, test=6)
