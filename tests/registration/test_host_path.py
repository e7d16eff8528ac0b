# SPDX-License-Identifier: Apache-2.0
"""The C++ kernel with a driver of Python's: what is launched is written down, and the softmax is done by PyTorch."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import flag_gems
import pytest
import torch
from torch.library import Library
from triton import knobs

from flag_gems_overrides import install, uninstall, use_overrides
from flag_gems_overrides.ops.launch.prepared import Launch
from flag_gems_overrides.registration import installation
from flag_gems_overrides.registration.host import HostPath, extension

pytestmark = [pytest.mark.no_gpu, pytest.mark.filterwarnings("ignore:Warning only once for all operators")]

FUNCTION = 0x5EED


class Configuration(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class Driver:
    """Runs a softmax of float32 rows for every launch."""

    def __init__(self):
        self.launched = []
        self.context = 77
        self.fails_with = 0
        self.during = lambda: None
        launch_type = ctypes.CFUNCTYPE(
            ctypes.c_int,
            ctypes.POINTER(Configuration),
            ctypes.c_void_p,
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.c_void_p,
        )
        self._launch = launch_type(self.launch)
        self._context = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))(self.current_context)

    def addresses(self):
        return [ctypes.cast(f, ctypes.c_void_p).value for f in (self._launch, self._context)] + [0, 0, 0]

    def current_context(self, context):
        context[0] = self.context
        return 0

    def launch(self, configuration, function, params, extra):
        c = configuration.contents
        x, out, M, N, *scratch = (ctypes.cast(params[i], ctypes.POINTER(ctypes.c_int64))[0] for i in range(6))
        self.launched.append((function, list(c.grid), list(c.block), c.shared, c.attribute_count, M, N, scratch))
        self.during()
        if self.fails_with:
            return self.fails_with
        source, target = (
            torch.frombuffer((ctypes.c_float * (M * N)).from_address(p), dtype=torch.float32).view(M, N)
            for p in (x, out)
        )
        e = (source - source.amax(1, keepdim=True)).exp()
        target.copy_(e / e.sum(1, keepdim=True))
        return 0


@pytest.fixture(scope="session")
def kernel():
    """The extension, built here if it is not in the cache yet."""
    return extension.load(extension.build())


@pytest.fixture
def driver(kernel):
    made = Driver()
    kernel.set_driver(*made.addresses())
    return made


@pytest.fixture
def compiled(monkeypatch):
    """Launches of softmax say that they are compiled, which in the interpreter they never are."""
    fake = SimpleNamespace(
        function=FUNCTION,
        metadata=SimpleNamespace(num_warps=4, shared=96, num_ctas=1, launch_cooperative_grid=True, launch_pdl=False),
        src=SimpleNamespace(signature={0: "*fp32", 1: "*fp32", 2: "i32", 3: "i32", 4: "constexpr"}),
    )
    monkeypatch.setattr(Launch, "compiled", lambda self, tensors: fake)


@pytest.fixture
def path_of(kernel, driver, compiled):
    """An override's way through C++, in force once flag_gems has registered it."""
    install()
    made = installation._installation
    source = SimpleNamespace(start=lambda: None, module=kernel)
    changed = []

    def path_of(name: str, overload: str) -> HostPath:
        path = HostPath(flag_gems, made._wrappers[name], overload, "CPU", source)
        made._wrappers[name].call_first(path.notice)
        changed.append(made._wrappers[name])
        made._host_paths.append(path)
        install()
        return path

    yield path_of
    uninstall()
    made._host_paths.clear()
    for wrapper in changed:
        wrapper._notice = None


@pytest.fixture
def path(path_of):
    return path_of("softmax", "_softmax")


@pytest.fixture
def enabled(path, enable):
    enable("softmax")
    return path


def softmax(x, dim=1):
    return torch._softmax(x, dim, False)


def matrix(*shape):
    return torch.randn(*shape or (4, 8))


def warm(x):
    """The first call registers C++, the second is written down."""
    softmax(x)
    softmax(x)


def test_what_aten_has_by_name_only(path_of, enable):
    """aminmax's dim and keepdim, which the override takes by position."""
    path = path_of("aminmax", "aminmax")
    enable("aminmax")
    values = torch.aminmax(matrix(), dim=1)
    assert [x.shape for x in values] == [(4,), (4,)]
    assert path._on


class Summing(Driver):
    """Sums all of a tensor for every launch."""

    def launch(self, configuration, function, params, extra):
        x, out, _, N = (ctypes.cast(params[i], ctypes.POINTER(ctypes.c_int64))[0] for i in range(4))
        self.launched.append(function)
        total = sum((ctypes.c_float * (N & 0xFFFFFFFF)).from_address(x))
        ctypes.c_float.from_address(out).value = total
        return 0


class TestOut:
    """What the caller gives for the result."""

    @pytest.fixture
    def driver(self, kernel):
        made = Summing()
        kernel.set_driver(*made.addresses())
        return made

    @pytest.fixture
    def enabled(self, compiled, path_of, enable, monkeypatch):
        fake = Launch.compiled
        signature = dict(enumerate(["*fp32", "*fp32", "constexpr", "constexpr", *["i32"] * 20]))

        def compiled(self, tensors):
            made = fake(self, tensors)
            return SimpleNamespace(function=FUNCTION, metadata=made.metadata, src=SimpleNamespace(signature=signature))

        monkeypatch.setattr(Launch, "compiled", compiled)
        path = path_of("sum_out", "sum.out")
        enable("sum_out")
        return path

    def test_it_is_written_and_returned(self, enabled, driver):
        for _ in range(4):
            x, out = matrix(), torch.full((), 7.0)
            assert torch.ops.aten.sum.out(x, out=out) is out
            torch.testing.assert_close(out, x.flatten().cumsum(0)[-1])
        assert (enabled.replayed, len(driver.launched)) == (2, 2)

    @pytest.mark.parametrize("start", [0, 1, 4, 31])
    def test_one_that_is_a_part_of_the_input(self, enabled, driver, start):
        self.test_it_is_written_and_returned(enabled, driver)
        for _ in range(4):
            x = matrix()
            want = x.flatten().cumsum(0)[-1]
            torch.testing.assert_close(torch.ops.aten.sum.out(x, out=x.view(-1)[start]), want)
        assert len(driver.launched) == 2

    def test_one_that_is_a_part_of_the_input_by_another_name(self, enabled, driver):
        for _ in range(4):
            base = torch.randn(40)
            other = torch.from_dlpack(base)
            x = base[:32].view(4, 8)
            want = x.flatten().cumsum(0)[-1]
            torch.testing.assert_close(torch.ops.aten.sum.out(x, out=other[32]), want)
            torch.testing.assert_close(torch.ops.aten.sum.out(x, out=base[4]), want)
        assert not driver.launched

    def test_one_of_another_shape(self, enabled, driver):
        for _ in range(4):
            x, out = matrix(), torch.empty(0)
            torch.ops.aten.sum.out(x, out=out)
            torch.testing.assert_close(out, x.flatten().cumsum(0)[-1])
        assert not driver.launched

    def test_one_of_another_dtype(self, enabled, driver):
        for _ in range(4):
            with pytest.raises(RuntimeError, match="Expected out tensor to have dtype float, but got double instead"):
                torch.ops.aten.sum.out(matrix(), out=torch.empty((), dtype=torch.double))
        assert not driver.launched


class TestReplay:
    def test_a_third_call_does_not_reach_python(self, enabled, driver):
        x = matrix()
        warm(x)
        assert (enabled.replayed, driver.launched) == (0, [])
        y = matrix()
        torch.testing.assert_close(softmax(y), y.softmax(1))
        assert enabled.replayed == 2  # y.softmax is another
        function, _, block, shared, attributes, M, N, scratch = driver.launched[0]
        assert (function, block, shared, attributes) == (FUNCTION, [128, 1, 1], 96, 1)
        assert (M, N, scratch) == (4, 8, [0, 0])

    def test_results_are_new_each_time(self, enabled):
        x = matrix()
        warm(x)
        first, second = softmax(x), softmax(x)
        assert first.data_ptr() != second.data_ptr()
        assert (first.shape, first.stride(), first.dtype) == (x.shape, x.stride(), x.dtype)

    @pytest.mark.parametrize(
        "other",
        [
            lambda: (matrix(8, 4), 1),
            lambda: (matrix(4, 8), -1),
            lambda: (matrix(4, 8).double(), 1),
            lambda: (matrix(8, 4).t(), 1),
            lambda: (matrix(5, 8)[1:], 1),  # the same but for its address, a multiple of 16 here
            lambda: (torch.randn(33)[1:].view(4, 8), 1),  # no multiple of 16
            lambda: (matrix(2, 4, 8), 2),
        ],
    )
    def test_another_description_has_another_recipe(self, enabled, other):
        warm(matrix())
        x, dim = other()
        torch.testing.assert_close(softmax(x, dim), x.exp() / x.exp().sum(dim, keepdim=True))

    def test_what_python_made_contiguous(self, enabled, driver):
        x = matrix(8, 4).t()
        softmax(x)
        softmax(x)
        torch.testing.assert_close(softmax(x), x.exp() / x.exp().sum(1, keepdim=True))
        assert enabled.replayed
        assert driver.launched

    def test_unsupported_inputs_go_to_native(self, enabled, driver):
        x = torch.randn(4, 8, dtype=torch.complex64)
        for _ in range(4):
            with pytest.raises(RuntimeError, match="not implemented"):
                softmax(x)
        assert not driver.launched

    def test_errors_of_python_come_through(self, enabled):
        warm(matrix())
        for _ in range(2):
            with pytest.raises(IndexError, match="Dimension out of range"):
                softmax(matrix(), 5)

    def test_errors_of_the_driver(self, enabled, driver):
        x = matrix()
        warm(x)
        driver.fails_with = 700
        with pytest.raises(RuntimeError, match=r"Triton Error \[CUDA\]: .*700"):
            softmax(x)

    def test_another_context(self, enabled, driver):
        x = matrix()
        warm(x)
        driver.context = 78
        torch.testing.assert_close(softmax(x), x.exp() / x.exp().sum(1, keepdim=True))
        assert not driver.launched

    def test_gradients(self, enabled, driver):
        x = matrix().requires_grad_()
        warm(x)
        y = softmax(x)
        assert y.grad_fn is not None
        y[:, 0].sum().backward()
        p = y.detach()
        want = -p * p[:, :1]
        want[:, 0] += p[:, 0]
        torch.testing.assert_close(x.grad, want)
        assert driver.launched

    def test_above_autograd_python_answers_what_needs_a_gradient(self, enabled, driver):
        """As for an operator that PyTorch composes of others, such as rms_norm, whose override brings its gradient."""
        x = matrix()
        warm(x)
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
        torch.ops.aten._softmax.default.redispatch(keys, x.requires_grad_(), 1, False)
        assert (enabled.replayed, driver.launched) == (0, [])
        with torch.no_grad():
            torch.ops.aten._softmax.default.redispatch(keys, x, 1, False)
        assert enabled.replayed == 1

    def test_inside_vmap_autocast_and_inference_mode(self, enabled):
        x = matrix(3, 4, 8)
        want = x.exp() / x.exp().sum(2, keepdim=True)
        for _ in range(3):
            torch.testing.assert_close(torch.func.vmap(softmax)(x), want)
            with torch.autocast("cpu"):
                torch.testing.assert_close(softmax(x, 2), want)
            with torch.inference_mode():
                assert softmax(x, 2).is_inference()

    def test_a_model_that_is_compiled_around_it(self, enabled):
        x = matrix()
        warm(x)
        run = torch.compile(lambda x: softmax(x) + 1, backend="eager")
        torch.testing.assert_close(run(x), softmax(x) + 1)

    def test_more_descriptions_than_are_kept(self, enabled):
        for n in range(2, 60):  # the stand-in of the driver runs softmax_rows
            for _ in range(3):
                x = matrix(2, n)
                torch.testing.assert_close(softmax(x), x.exp() / x.exp().sum(1, keepdim=True))


class TestWhoAnswers:
    def test_nothing_before_flag_gems_is_enabled(self, path, driver):
        for _ in range(3):
            softmax(matrix())
            flag_gems.softmax(matrix(), 1)
        assert (path.replayed, driver.launched) == (0, [])

    def test_launch_hooks(self, enabled, driver):
        x = matrix()
        warm(x)

        def hook(_):
            """Whoever hooks into launches sees all."""

        knobs.runtime.launch_enter_hook.add(hook)
        try:
            softmax(x)
            assert not driver.launched
        finally:
            knobs.runtime.launch_enter_hook.remove(hook)
        softmax(x)
        assert driver.launched

    def test_log_levels(self, enabled, driver, caplog):
        x = matrix()
        warm(x)
        logger = logging.getLogger("flag_gems")
        for _ in range(2):
            with caplog.at_level(logging.DEBUG, logger.name):
                logging.getLogger("flag_gems.ops.softmax").debug("someone else asks first")
                softmax(x)
                assert "GEMS SOFTMAX" in caplog.text
            caplog.clear()
            launched = len(driver.launched)
            softmax(x)  # Python once more, which sees that the level is back
            softmax(x)
            assert len(driver.launched) == launched + 1
            assert not caplog.text

    def test_uninstall_and_install(self, enabled, driver):
        x = matrix()
        warm(x)
        softmax(x)
        assert len(driver.launched) == 1
        uninstall()
        for _ in range(3):
            softmax(x)
        assert len(driver.launched) == 1
        install()
        for _ in range(3):  # the first call registers C++ again, which knows the recipe
            softmax(x)
        assert len(driver.launched) == 3

    def test_what_is_forgotten(self, enabled, driver, kernel):
        x = matrix()
        warm(x)
        softmax(x)
        kernel.forget()
        softmax(x)  # Python again
        assert len(driver.launched) == 1
        softmax(x)
        assert len(driver.launched) == 2

    def test_nested_choices(self, enabled, driver):
        x = matrix()
        warm(x)
        with use_overrides(exclude=["softmax"]):
            for _ in range(3):
                softmax(x)
            assert not driver.launched
            with use_overrides():
                warm(x)
                softmax(x)
                assert len(driver.launched) == 2
        for _ in range(4):
            softmax(x)
        assert len(driver.launched) > 2

    def test_the_dispatcher_is_as_it_was(self, path, use_gems, overload_dump):
        before = overload_dump("_softmax")
        with use_gems("softmax"):
            warm(matrix())
            softmax(matrix())
            assert path.replayed == 1
        assert overload_dump("_softmax") == before
        library = Library("aten", "IMPL")
        handles = list(library._registration_handles)
        with use_gems("softmax"):
            warm(matrix())
            uninstall()
            install()
        assert overload_dump("_softmax") == before
        assert handles == []

    def test_use_gems_inside_an_enabled_flag_gems(self, enabled, use_gems, driver):
        x = matrix()
        warm(x)
        for _ in range(3):
            launched = len(driver.launched)
            with use_gems("softmax", "max"):
                for _ in range(3):
                    softmax(x)
            assert len(driver.launched) > launched
            softmax(x)

    def test_a_library_that_is_collected(self, path, enable, overload_dump, driver):
        before = overload_dump("_softmax")
        library = Library("aten", "IMPL")
        enable("softmax", lib=library)
        warm(matrix())
        softmax(matrix())
        assert len(driver.launched) == 1
        flag_gems.current_work_registrar = None
        del library
        gc.collect()
        assert overload_dump("_softmax") == before

    def test_someone_elses_kernel_stays_on_top(self, path, enable, driver):
        enable("softmax")
        calls = []

        def mine(self, dim, half_to_float):
            calls.append(dim)
            return flag_gems.softmax(self, dim, half_to_float)

        library = Library("aten", "IMPL")
        library.impl("_softmax", mine, "CPU")
        for _ in range(4):
            softmax(matrix())
        assert len(calls) >= 4
        assert not driver.launched
        library._destroy()


class TestThreadsAndProcesses:
    # Both without the dispatcher's table being written while another thread reads it: see docs/limits.md.

    def test_switching_while_cpp_runs(self, enabled, driver):
        x = matrix()
        want = x.exp() / x.exp().sum(1, keepdim=True)
        inside = threading.Barrier(5, timeout=60)
        for _ in range(5):
            driver.during = lambda: None
            warm(x)
            launched = len(driver.launched)
            driver.during = lambda: (inside.wait(), inside.wait())
            with ThreadPoolExecutor(4) as pool:
                answers = [pool.submit(softmax, x) for _ in range(4)]
                inside.wait()
                uninstall()
                gc.collect()
                install()
                inside.wait()
            assert len(driver.launched) == launched + 4
            for answer in answers:
                torch.testing.assert_close(answer.result(), want)

    def test_switching_while_python_runs(self, path):
        def work(seed):
            generator = torch.Generator().manual_seed(seed)
            for _ in range(10):
                x = torch.randn(2 + seed % 3, 8, generator=generator)
                torch.testing.assert_close(flag_gems.softmax(x, 1), x.exp() / x.exp().sum(1, keepdim=True))

        with ThreadPoolExecutor(4) as pool:
            done = [pool.submit(work, seed) for seed in range(4)]
            while not all(each.done() for each in done):
                uninstall()
                install()
        for each in done:
            each.result()

    def test_a_forked_child(self, enabled):
        x = matrix()
        warm(x)
        child = os.fork()
        if child == 0:
            good = torch.allclose(softmax(x), x.exp() / x.exp().sum(1, keepdim=True), atol=1e-6)
            os._exit(0 if good else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class TestBuild:
    def test_without_a_compiler(self, monkeypatch, tmp_path):
        monkeypatch.setenv("CXX", "no-such-compiler")
        with pytest.raises(extension.BuildError, match="no C\\+\\+ compiler: no-such-compiler is not found"):
            extension.build(tmp_path / "kernel.so")

    def test_a_compiler_that_refuses(self, monkeypatch, tmp_path):
        monkeypatch.setenv("CXX", "false")
        with pytest.raises(extension.BuildError, match=r"failed with status 1; see .*build\.log"):
            extension.build(tmp_path / "kernel.so")
        assert not list(tmp_path.glob("*.so"))

    def test_the_first_call_does_not_wait(self, monkeypatch, tmp_path, caplog):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setenv("CXX", "false")
        made = extension.Extension()
        made.start()
        assert made.wait() is None
        assert "failed with status 1" in made.state
        assert "calls go through Python" in caplog.text

    def test_switched_off(self, monkeypatch):
        monkeypatch.setenv(extension.OFF, "0")
        made = extension.Extension()
        made.start()
        assert made.wait() is None
        assert made.state == "switched off by GEMS_OVERRIDES_CPP=0"
