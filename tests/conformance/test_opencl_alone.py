"""op_db, float32, forward and backward, with OpenCL kernels alone: the others are a checked-in list that may only shrink.

A tenth of the entries by default; all of them with FLAGOS_TEST_WHOLE=1 (about an hour on one core)."""
import os

import opencl_alone
import pytest

WHOLE = os.environ.get("FLAGOS_TEST_WHOLE") == "1"
PART = (0, 1) if WHOLE else (3, 10)


@pytest.fixture(scope="module")
def entries():
    return opencl_alone.judged(opencl_alone.survey(PART))


def test_the_list_of_others_only_shrinks(entries):
    listed = opencl_alone.names(opencl_alone.OTHERS)
    bad = opencl_alone.others(entries)
    assert not {name: why for name, (verdict, why) in bad.items() if verdict == "wrong"}
    assert not {name: why for name, (_, why) in bad.items() if name not in listed}
    healed = [name for name in listed if name in entries and name not in bad]
    assert not (WHOLE and healed), "equal now; take these out of the list"


def test_at_least_four_fifths_are_equal(entries):
    equal = sum(verdict == "equal" for verdict, _, _ in entries.values())
    assert len(entries) > (600 if WHOLE else 50)
    assert equal >= 0.8 * len(entries)


def test_what_computes_starts_a_kernel(entries):
    assert set(opencl_alone.silent(entries)) <= set(opencl_alone.names(opencl_alone.SILENT))


def test_the_lists_hold_names_of_the_database_and_reasons():
    from samples import entries as database, full_name

    known = {full_name(op) for op in database()}
    for path in (opencl_alone.OTHERS, opencl_alone.SILENT):
        lines = opencl_alone.names(path)
        assert lines and set(lines) <= known
        assert all(len(rest) > 10 for rest in lines.values())
    assert len(opencl_alone.names(opencl_alone.OTHERS)) <= 0.2 * len(known)
