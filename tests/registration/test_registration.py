# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import inspect
import logging
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import replace

import flag_gems
import pytest
import torch

import flag_gems_overrides
from flag_gems_overrides import install, uninstall, use_overrides
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.registration import dispatcher, installation, wrapper

pytestmark = pytest.mark.filterwarnings("ignore:Warning only once for all operators")


def module_of(override):
    return sys.modules[override.upstream_module]


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, flag_gems_overrides, flag_gems_overrides.interpreter\n"
        "print(sorted({'torch', 'triton', 'flag_gems', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_public_face():
    assert sorted(flag_gems_overrides.__all__) == [
        "__version__",
        "catalog",
        "enable",
        "install",
        "uninstall",
        "use_overrides",
    ]
    assert callable(flag_gems_overrides.catalog)  # and not the module of that name


def test_names_are_bound_to_one_wrapper_everywhere(names):
    assert install() == names
    for name in names:
        override = OPERATORS[name]
        function = getattr(flag_gems, name)
        assert function is getattr(getattr(flag_gems, override.package), name) is getattr(module_of(override), name)
        assert function.__name__ == name
        assert inspect.unwrap(function) is override.load()[0]


def test_a_wrapper_has_upstreams_parameters(names):
    def parameters(function):
        return [(p.name, p.kind) for p in inspect.signature(function).parameters.values()]

    before = {name: parameters(getattr(flag_gems, name)) for name in names}
    install()
    assert {name: parameters(getattr(flag_gems, name)) for name in names} == before


def test_a_wrapper_can_be_pickled_like_what_it_stands_for():
    upstreams = pickle.dumps(flag_gems.softmax)
    install()
    assert pickle.dumps(flag_gems.softmax) == upstreams
    assert pickle.loads(upstreams) is flag_gems.softmax


def test_direct_calls_are_answered_by_the_override(x, who):
    install()
    assert who(flag_gems.softmax, x, 1) == ["ours"]
    assert who(flag_gems.ops.amax, x, dim=[1]) == ["ours"]
    assert who(flag_gems.prod, inp=x, dtype=torch.float32) == ["ours"]
    uninstall()
    assert who(flag_gems.softmax, x, 1) == ["upstream"]


@pytest.mark.skipif(flag_gems.__version__ == "4.2.0", reason="4.2.0 has no such object: it builds rows in enable()")
def test_the_rows_are_the_same_object_again():
    config = flag_gems._FULL_CONFIG
    install()
    assert flag_gems._FULL_CONFIG is not config
    uninstall()
    assert flag_gems._FULL_CONFIG is config


def test_a_module_imported_later_is_restored_too(monkeypatch):
    upstreams = flag_gems.max
    install()
    late = type(sys)("flag_gems.late")
    late.gems_max = flag_gems.max
    monkeypatch.setitem(sys.modules, late.__name__, late)
    uninstall()
    assert late.gems_max is upstreams


def test_before_the_first_installation_the_catalog_has_nothing_installed(monkeypatch, names):
    monkeypatch.setattr(installation, "_installation", None)
    assert [override.name for override in flag_gems_overrides.catalog()] == list(OPERATORS)
    assert not any(override.installed for override in flag_gems_overrides.catalog())


def test_a_notice_gets_every_call_while_the_override_is_on():
    def op(x, *, dtype=None):
        return "ours"

    made = wrapper.Wrapper(op, lambda x: x > 0, lambda x, *, dtype=None: "native", lambda *_, **__: "theirs")
    noticed = []
    made.call_first(lambda x, *, dtype=None: noticed.append((x, dtype)))
    assert made.function(1, dtype=2) == "theirs"
    made.turn_on()
    assert [made.function(1, dtype=2), made.function(-1)] == ["ours", "native"]
    made.turn_off()
    assert made.function(3) == "theirs"
    assert noticed == [(1, 2), (-1, None)]


class TestChoice:
    def installed(self):
        return [override.name for override in flag_gems_overrides.catalog() if override.installed]

    def test_install_replaces_the_choice(self):
        assert install(include=["max", "softmax"]) == ("softmax", "max")
        assert install(include=["prod"]) == ("prod",)
        assert self.installed() == ["prod"]
        assert install(include=["prod", "max"], exclude=["prod"]) == ("max",)
        assert install(include=[]) == ()

    def test_repeated_calls_change_nothing(self, state):
        install()
        before = state()
        install()
        assert not before.differences(state())
        uninstall()
        uninstall()

    def test_use_overrides_restores_the_choice_before(self):
        install(include=["max"])
        with use_overrides(include=["prod"]) as names:
            assert names == ("prod",)
            with use_overrides(include=[]):
                assert self.installed() == []
            assert self.installed() == ["prod"]
        assert self.installed() == ["max"]

    def test_use_overrides_restores_after_an_exception(self):
        with pytest.raises(KeyError), use_overrides():
            raise KeyError
        assert self.installed() == []

    def test_install_inside_a_block_ends_with_it(self):
        with use_overrides(include=["max"]):
            install(include=["prod"])
            assert self.installed() == ["prod"]
        assert self.installed() == []

    def test_use_overrides_decorates_recursively(self):
        @use_overrides(include=["max"])
        def depth(n):
            assert self.installed() == ["max"]
            return 1 + depth(n - 1) if n else 0

        assert depth(3) == 3
        assert self.installed() == []

    @pytest.mark.parametrize("call", [install, use_overrides])
    @pytest.mark.parametrize("argument", ["include", "exclude"])
    def test_unknown_names_are_refused_and_the_known_listed(self, call, argument):
        with pytest.raises(ValueError, match=rf"{argument}: no override named \['nope'\]; known: .*max_dim"):
            call(**{argument: ["max", "nope"]})
        with pytest.raises(TypeError, match="list of names"):
            call(**{argument: "max"})
        assert self.installed() == []

    def test_blocks_of_several_threads_end_in_any_order(self, state):
        before = state()
        entered, leave = [[threading.Event(), threading.Event()] for _ in range(2)]

        def block(i, name):
            with use_overrides(include=[name]):
                entered[i].set()
                leave[i].wait()

        threads = [threading.Thread(target=block, args=item) for item in enumerate(["max", "prod"])]
        try:
            for thread, event in zip(threads, entered, strict=True):
                thread.start()
                assert event.wait(60)
            leave[0].set()
            threads[0].join()
            assert self.installed() == ["prod"]
        finally:
            leave[0].set()
            leave[1].set()
        threads[1].join()
        assert not before.differences(state())

    def test_many_threads(self, state):
        before = state()
        failures = []

        def switch(i):
            try:
                for _ in range(5):
                    with use_overrides(include=[("max", "prod", "amax")[i % 3]]):
                        install()
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=switch, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert not before.differences(state())


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_midway_leaves_the_state_before(failing, enable, state, monkeypatch):
    enable("softmax", "max")
    install(include=["softmax"])
    before = state()
    register, calls = dispatcher._register, []

    def fail_once(*args):
        calls.append(args)
        if len(calls) == failing + 1:
            raise RuntimeError("no registration today")
        register(*args)

    monkeypatch.setattr(dispatcher, "_register", fail_once)
    with pytest.raises(RuntimeError, match="no registration today"):
        install()
    assert not before.differences(state())


class TestLeftOut:
    def test_a_function_that_upstream_lacks(self, fresh, monkeypatch, caplog, names):
        monkeypatch.delattr(sys.modules["flag_gems.ops.amax"], "amax")
        with caplog.at_level(logging.WARNING, "flag_gems_overrides"):
            assert install() == tuple(name for name in names if name != "amax")
        reason = f"flag_gems {flag_gems.__version__} has no function amax in ops/amax.py"
        assert f"amax is left out: {reason}" in caplog.text
        left_out = {o.name: o.left_out for o in flag_gems_overrides.catalog() if o.left_out}
        assert left_out["amax"] == reason
        assert set(left_out) == set(OPERATORS) - set(names) | {"amax"}
        uninstall()

    def test_a_function_that_came_later_is_no_reason_to_warn(self, fresh, monkeypatch, caplog):
        monkeypatch.setitem(OPERATORS, "max", replace(OPERATORS["max"], since="99.1"))
        monkeypatch.delattr(sys.modules["flag_gems.ops.max"], "max")
        with caplog.at_level(logging.INFO, "flag_gems_overrides"):
            assert install(include=["max", "prod"]) == ("prod",)
        (record,) = caplog.records
        assert record.levelno == logging.INFO
        assert record.getMessage().endswith(f"flag_gems {flag_gems.__version__} has no max yet, it came with 99.1")
        uninstall()

    @pytest.mark.parametrize("version", ["unknown", "5.3.4.post1.dev166+ged2508bcb+ged2508bcb"])
    def test_the_version_of_a_checkout_may_be_none(self, fresh, monkeypatch, names, version):
        monkeypatch.setattr(flag_gems, "__version__", version)
        monkeypatch.setitem(OPERATORS, "max", replace(OPERATORS["max"], since="4.2"))
        assert set(install()) >= set(names) & {"max", "amin"}
        uninstall()

    def test_a_function_with_other_parameters(self, fresh, monkeypatch, names):
        def amax(inp, dim=None, keepdim=False, out=None): ...

        monkeypatch.setattr(sys.modules["flag_gems.ops.amax"], "amax", amax)
        assert "amax" not in install()
        (left_out,) = (o.left_out for o in flag_gems_overrides.catalog() if o.name == "amax")
        assert "amax takes (inp, dim, keepdim, out)" in left_out
        assert left_out.endswith("the override (inp, dim, keepdim)")
        uninstall()

    def test_an_overload_that_the_c_extension_has(self, fresh, monkeypatch):
        monkeypatch.setattr(flag_gems.config, "aten_patch_list", ["max.dim"])
        assert "max_dim" not in install()
        uninstall()


def test_upstreams_own_op_log_shows_overrides(x, use_gems, tmp_path):
    install()
    log = tmp_path / "ops.log"
    logger = logging.getLogger("flag_gems")
    level, propagate = logger.level, logger.propagate
    try:
        with use_gems("softmax", "max_dim", record=True, path=log):
            torch.softmax(x, 1)
            torch.max(x, 1)
    finally:
        for handler in [h for h in logger.handlers if isinstance(h, logging.FileHandler)]:
            handler.close()
            logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
    text = log.read_text()
    assert "flag_gems.ops.softmax" in text
    assert "GEMS SOFTMAX" in text
    assert "flag_gems.ops.max" in text
    assert "GEMS MAX DIM" in text


def test_without_a_device_the_message_says_what_to_do_and_it_helps():
    code = (
        "import flag_gems_overrides\n"
        "try: flag_gems_overrides.install()\n"
        "except RuntimeError as error: print(error)\n"
        "flag_gems_overrides.interpreter.activate()\n"
        "print(flag_gems_overrides.install(include=['max']))"
    )
    env = {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", "import flag_gems_overrides.interpreter\n" + code],
        capture_output=True,
        text=True,
        env={**{k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "GEMS_VENDOR")}, **env},
    )
    assert done.returncode == 0, done.stderr
    for words in ("needs a GPU", "interpreter.activate()", "TRITON_INTERPRET=1", "('max',)"):
        assert words in done.stdout


def test_gradients_flow_through_the_overrides(device, enable, who):
    enable("layer_norm", "layer_norm_backward")
    x = torch.randn(2, 3, 5, device=device, requires_grad=True)
    weight = torch.randn(5, device=device, requires_grad=True)

    def gradients():
        return torch.autograd.grad(torch.layer_norm(x, (5,), weight).square().sum(), (x, weight))

    with use_overrides():
        answered = who(gradients)
        found = gradients()
    assert answered == ["ours", "ours"]
    x.data, weight.data = x.data.double(), weight.data.double()
    for ours, exact in zip(found, torch.autograd.grad(reference(x, weight), (x, weight)), strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=1e-4, atol=1e-5)


def reference(x, weight):
    centred = x - x.mean(-1, keepdim=True)
    return (centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight).square().sum()
