"""What the evaluation's tests share: the folder of real data, and outcomes made to order."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def examples() -> Path:
    """The project's own problems and samples."""
    return ROOT / "configs" / "examples"


@pytest.fixture
def shared_data() -> Path:
    """The folder of real data sets; the test is skipped where there is none."""
    folder = Path(os.environ.get("KILLPOOL_SHARED", ROOT.parent / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"no data sets at {folder}: set KILLPOOL_SHARED to the folder that holds data/")
    return folder
