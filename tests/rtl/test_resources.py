"""What the kv260 build takes of its device, by yosys, is what is committed."""

import pytest

from fpga.synth import results
from fpga.synth.synthesis import synthesise_card
from fpga.vivado.builds import load_build

pytestmark = pytest.mark.rtl


@pytest.mark.timeout(1800)  # three to four minutes on two idle processors
def test_the_kv260_build_takes_what_is_committed():
    """Every module exactly, if yosys is of the version that counted what is committed."""
    found = synthesise_card(load_build("kv260"))
    changed = results.compare(results.load("kv260"), found)
    assert not changed, "\n".join([*changed, "run `make rtl-resources` and look at the changes"])
