# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from types import SimpleNamespace

import flag_gems
import pytest

from flag_gems_overrides.registration import upstream


def theirs(): ...


def ours(): ...


def other(): ...


@pytest.fixture
def gems():
    """Rows as the known lines of flag_gems have them: bare, with a condition, with extra dispatch keys."""
    config = (
        ("op", theirs),
        ("op.out", theirs, None, ("Meta",)),
        ("op_", theirs, lambda: False),
        ("other", other),
    )
    return SimpleNamespace(_FULL_CONFIG=config, FULL_CONFIG_BY_FUNC={"theirs": list(config[:3]), "other": [config[3]]})


def test_rows_keep_their_tail(gems):
    config = gems._FULL_CONFIG
    upstream.Rows(gems).replace({theirs: ours})
    assert [row[1] for row in gems._FULL_CONFIG] == [ours, ours, ours, other]
    assert [row[2:] for row in gems._FULL_CONFIG] == [row[2:] for row in config]
    assert gems.FULL_CONFIG_BY_FUNC["theirs"] == list(gems._FULL_CONFIG[:3])


def test_rows_come_back_as_the_same_objects(gems):
    config, lists = gems._FULL_CONFIG, dict(gems.FULL_CONFIG_BY_FUNC)
    rows = upstream.Rows(gems)
    for _ in range(2):
        rows.replace({theirs: ours})
        rows.replace({ours: theirs})
    assert gems._FULL_CONFIG is config
    for name, entries in lists.items():
        assert gems.FULL_CONFIG_BY_FUNC[name] is entries
        assert all(any(entry is row for row in config) for entry in entries)


def test_rows_that_somebody_else_added_stay(gems):
    rows = upstream.Rows(gems)
    rows.replace({theirs: ours})
    extra = ("extra", other)
    gems._FULL_CONFIG += (extra,)
    rows.replace({ours: theirs})
    assert gems._FULL_CONFIG[-1] is extra
    assert [row[1] for row in gems._FULL_CONFIG] == [theirs, theirs, theirs, other, other]


def test_a_flag_gems_without_rows(gems):
    del gems._FULL_CONFIG
    upstream.Rows(gems).replace({theirs: ours})
    assert gems.FULL_CONFIG_BY_FUNC["theirs"][0][1] is theirs


def test_reading_the_rows_leaves_no_trace():
    registrar = flag_gems.current_work_registrar
    assert upstream.rows(flag_gems)["_softmax"] is flag_gems.softmax
    assert flag_gems.current_work_registrar is registrar
    del flag_gems.current_work_registrar  # as after a use_gems block
    upstream.rows(flag_gems)
    assert not hasattr(flag_gems, "current_work_registrar")


class TestOtherLines:
    """What the installed flag_gems is not: 4.2.0, without rows and ``only_enable``, and 5.3.4, with other names."""

    @pytest.fixture
    def old(self):
        def softmax(): ...

        def enable(registrar):
            gems.current_work_registrar = "what enable leaves"
            registrar([("_softmax", softmax), ("op", theirs)], unused=[])

        gems = SimpleNamespace(enable=enable, use_gems=lambda **options: options)
        return gems

    def test_rows_are_those_that_enable_would_register(self, old):
        assert [*upstream.rows(old)] == ["_softmax", "op"]
        assert upstream.rows(old)["op"] is theirs
        assert not hasattr(old, "current_work_registrar")
        old.current_work_registrar = registrar = object()
        upstream.rows(old)
        assert old.current_work_registrar is registrar

    def test_only_these_operators_are_all_but_the_others(self, old):
        assert upstream.use_gems(old, ["softmax"], record=True) == {"unused": ["theirs"], "record": True}

    def test_an_operator_goes_by_the_name_of_the_function_that_is_registered(self):
        def native_layer_norm(): ...

        gems = SimpleNamespace(
            _FULL_CONFIG=(("native_layer_norm", native_layer_norm), ("_softmax", flag_gems.softmax)),
            only_enable=None,
            use_gems=lambda **options: options,
        )
        assert upstream.registered_names(gems, ["layer_norm", "softmax", "prod"]) == [
            "native_layer_norm",
            "softmax",
            "prod",
        ]
        assert upstream.use_gems(gems, ["layer_norm"], record=True) == {
            "include": ["native_layer_norm"],
            "record": True,
        }


def test_without_a_device_it_says_what_to_do(monkeypatch):
    import torch

    monkeypatch.setattr(upstream, "is_loaded", lambda: False)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=r"interpreter\.activate\(\)"):
        upstream.load()
