// SPDX-License-Identifier: Apache-2.0
//
// The dispatcher's kernel for every override. It looks up what Python did for a call of this description (dtypes,
// sizes, strides, alignment, device, scalars) and does the same again: allocate, launch, return. Whatever it cannot
// answer itself it hands to the Python function. It is built without the CUDA toolkit: the few driver functions come in
// as addresses, and tests give it others.
#include <ATen/EmptyTensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <optional>
#include <shared_mutex>
#include <unordered_map>

namespace {

using Stack = torch::jit::Stack;
using Values = c10::ArrayRef<c10::IValue>;
using Key = c10::SmallVector<int64_t, 64>;

// ---------------------------------------------------------------- the driver, as cuda.h declares it

struct Attribute {
  int id;
  char padding[4];
  char value[64];
};
constexpr int COOPERATIVE = 2, PROGRAMMATIC_STREAM_SERIALIZATION = 6;

struct Configuration {
  unsigned grid[3], block[3], shared;
  void* stream;
  Attribute* attributes;
  unsigned attribute_count;
};

struct Driver {
  int (*launch)(const Configuration*, void* function, void** params, void** extra) = nullptr;
  int (*context)(void** context) = nullptr;
  int (*capturing)(void* stream, int* status) = nullptr;
  int (*error)(int code, const char** text) = nullptr;
  void* (*stream)(const c10::Stream*) = nullptr;  // c10::cuda::CUDAStream::stream
} driver;

void* current_context() {
  void* context = nullptr;
  return driver.context && driver.context(&context) == 0 ? context : nullptr;
}

void* current_stream(c10::Device device) {
  auto stream = c10::impl::getDeviceGuardImpl(device.type())->getStream(device);
  return driver.stream ? driver.stream(&stream) : nullptr;
}

bool is_capturing(void* stream) {
  int status = 0;
  return driver.capturing && (driver.capturing(stream, &status) != 0 || status != 0);
}

// ---------------------------------------------------------------- what a call does

struct Param {
  enum Kind { Allocation, Argument, Copy, Counter, Value } kind;
  uint64_t value;  // which one, or the bits of a scalar
};

struct Launch {
  void* function;
  std::array<unsigned, 3> grid;
  unsigned threads, shared;
  std::vector<Attribute> attributes;
  std::vector<Param> params;
};

struct Allocation {
  std::vector<int64_t> shape, strides;  // no strides where it is contiguous
  at::ScalarType dtype;
};

struct Recipe {
  c10::Device device;
  void* context;
  std::vector<Allocation> allocations;
  std::vector<size_t> copies;  // arguments that are made contiguous
  std::vector<std::pair<at::ScalarType, int64_t>> counters;
  std::vector<Launch> launches;
  std::vector<std::optional<Param>> results;  // an allocation, an argument (``out``), or none
};

// ---------------------------------------------------------------- zeroed counters, one buffer for a stream and dtype

std::shared_mutex buffers_lock;
std::vector<std::pair<void*, at::Tensor>> buffers;

bool is_buffer(const std::pair<void*, at::Tensor>& buffer, void* stream, c10::Device device, at::ScalarType dtype) {
  return buffer.first == stream && buffer.second.device() == device && buffer.second.scalar_type() == dtype;
}

void keep_buffer(void* stream, at::Tensor tensor) {
  std::unique_lock lock(buffers_lock);
  for (auto& buffer : buffers) {
    if (is_buffer(buffer, stream, tensor.device(), tensor.scalar_type())) {
      if (buffer.second.numel() < tensor.numel()) buffer.second = std::move(tensor);
      return;
    }
  }
  buffers.emplace_back(stream, std::move(tensor));
}

void* find_buffer(void* stream, c10::Device device, const std::pair<at::ScalarType, int64_t>& wanted) {
  std::shared_lock lock(buffers_lock);
  for (auto& buffer : buffers)
    if (is_buffer(buffer, stream, device, wanted.first) && buffer.second.numel() >= wanted.second)
      return buffer.second.data_ptr();
  return nullptr;
}

// ---------------------------------------------------------------- the description of a call

using Pointers = c10::SmallVector<const void*, 8>;

// The first argument of the same, or how many there are.
int64_t first_of(const Pointers& seen, const void* pointer) {
  return std::find(seen.begin(), seen.end(), pointer) - seen.begin();
}

bool describe_tensor(const at::Tensor& tensor, Key& key, Pointers& addresses, Pointers& storages) {
  if (!tensor.defined()) {
    key.push_back(-1);
    return true;
  }
  if (tensor.layout() != at::kStrided || !tensor.has_storage()) return false;
  // Here autograd has had its turn, but for operators that PyTorch composes of others (rms_norm): those record theirs.
  if (tensor.requires_grad() && at::GradMode::is_enabled() &&
      !c10::impl::tls_is_dispatch_keyset_excluded(c10::autograd_dispatch_keyset))
    return false;
  const void* pointer = tensor.const_data_ptr();
  const void* storage = tensor.storage().data();
  // A recipe tells arguments apart by their addresses, and what may be written depends on what is a part of what.
  const int64_t alias = first_of(addresses, pointer), part = first_of(storages, storage);
  addresses.push_back(pointer);
  storages.push_back(storage);
  const auto device = tensor.device();
  key.push_back(
      static_cast<int64_t>(tensor.scalar_type()) | static_cast<int64_t>(device.type()) << 8 |
      static_cast<int64_t>(static_cast<uint8_t>(device.index())) << 16 | tensor.dim() << 24 | alias << 32 |
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer) % 16 == 0) << 40 | part << 48);
  key.append(tensor.sizes().begin(), tensor.sizes().end());
  key.append(tensor.strides().begin(), tensor.strides().end());
  return true;
}

// Every value starts with a word that says its type and length, so no two calls have one description.
bool describe(Values values, Key& key) {
  Pointers addresses, storages;
  for (const auto& value : values) {
    if (value.isTensor()) {
      if (!describe_tensor(value.toTensor(), key, addresses, storages)) return false;
    } else if (value.isNone()) {
      key.push_back(-2);
    } else if (value.isInt()) {
      key.append({-3, value.toInt()});
    } else if (value.isBool()) {
      key.append({-4, static_cast<int64_t>(value.toBool())});
    } else if (value.isDouble()) {
      const double number = value.toDouble();
      int64_t bits;
      std::memcpy(&bits, &number, sizeof bits);
      key.append({-5, bits});
    } else if (value.isIntList()) {
      const auto list = value.toIntList();
      key.append({-6, static_cast<int64_t>(list.size())});
      for (int64_t number : list) key.push_back(number);
    } else if (value.isBoolList()) {
      const auto list = value.toBoolList();
      key.append({-7, static_cast<int64_t>(list.size())});
      for (bool flag : list) key.push_back(flag);
    } else {
      return false;
    }
  }
  return true;
}

uint64_t hash(const Key& key) {
  uint64_t hash = key.size();
  for (int64_t word : key) {
    hash = (hash ^ static_cast<uint64_t>(word)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return hash;
}

// ---------------------------------------------------------------- an operator

constexpr size_t MAX_RECIPES = 4096;  // as many as Python keeps prepared launches for

struct Operator {
  py::object python;  // called with the key, or None, and then the arguments
  PyObject* hooks;    // Triton's list of launch hooks
  PyObject* levels;   // the logger's cache of levels: emptied when any level changes
  std::atomic<bool> quiet{false};
  std::atomic<int64_t> replayed{0};

  std::shared_mutex lock;
  struct Entry {
    Key key;
    std::shared_ptr<const Recipe> recipe;  // null: only Python can answer
  };
  std::unordered_map<uint64_t, std::vector<Entry>> entries;
  size_t count = 0;

  // Both objects live as long as the process, and their sizes are read without the GIL: a hook or a log level that
  // comes while a call runs holds from the next call on.
  bool is_observed() const {
    return Py_SIZE(hooks) != 0 || !quiet.load(std::memory_order_relaxed) ||
        reinterpret_cast<PyDictObject*>(levels)->ma_used == 0;
  }

  bool find(const Key& key, std::shared_ptr<const Recipe>& recipe) {
    std::shared_lock held(lock);
    const auto found = entries.find(hash(key));
    if (found == entries.end()) return false;
    for (const auto& entry : found->second) {
      if (entry.key == key) {
        recipe = entry.recipe;
        return true;
      }
    }
    return false;
  }

  void put(const py::bytes& bytes, std::shared_ptr<const Recipe> recipe) {
    const std::string_view view = bytes;
    const auto* words = reinterpret_cast<const int64_t*>(view.data());
    Key key(words, words + view.size() / sizeof(int64_t));
    std::unique_lock held(lock);
    if (count >= MAX_RECIPES) {
      entries.clear();
      count = 0;
    }
    auto& bucket = entries[hash(key)];
    for (auto& entry : bucket) {
      if (entry.key == key) {
        entry.recipe = std::move(recipe);
        return;
      }
    }
    bucket.push_back({std::move(key), std::move(recipe)});
    ++count;
  }
};

std::vector<Operator*> operators;  // never freed: a call may still be in one when its registration ends

void forget() {
  for (auto* op : operators) {
    std::unique_lock held(op->lock);
    op->entries.clear();
    op->count = 0;
  }
}

void renew_locks() {  // a lock held by another thread at a fork would never be free in the child
  new (&buffers_lock) std::shared_mutex;
  for (auto* op : operators) new (&op->lock) std::shared_mutex;
}

at::Tensor allocate(const Allocation& wanted, c10::Device device) {
  auto* allocator = device.is_cuda() ? at::detail::getCUDAHooks().getCUDADeviceAllocator()
                                     : c10::GetAllocator(device.type());
  const auto keys = c10::DispatchKeySet(c10::computeDispatchKey(wanted.dtype, c10::kStrided, device));
  if (wanted.strides.empty())
    return at::Tensor(at::detail::empty_generic(wanted.shape, allocator, keys, wanted.dtype, std::nullopt));
  return at::Tensor(at::detail::empty_strided_generic(wanted.shape, wanted.strides, allocator, keys, wanted.dtype));
}

enum class Outcome { Done, Python, Stale };

Outcome replay(const Recipe& recipe, size_t argument_count, Stack* stack) {
  c10::OptionalDeviceGuard guard;
  if (recipe.device.is_cuda() &&
      c10::impl::getDeviceGuardImpl(recipe.device.type())->getDevice() != recipe.device)
    guard.reset_device(recipe.device);
  if (current_context() != recipe.context) return Outcome::Python;
  void* stream = current_stream(recipe.device);

  c10::SmallVector<void*, 4> counters;
  if (!recipe.counters.empty() && is_capturing(stream)) return Outcome::Python;  // a graph has its own
  for (const auto& wanted : recipe.counters) {
    counters.push_back(find_buffer(stream, recipe.device, wanted));
    if (!counters.back()) return Outcome::Stale;
  }

  const auto arguments = torch::jit::last(*stack, argument_count);
  c10::SmallVector<at::Tensor, 4> copies, made;
  for (size_t argument : recipe.copies) copies.push_back(arguments[argument].toTensor().contiguous());
  for (const auto& wanted : recipe.allocations) made.push_back(allocate(wanted, recipe.device));

  for (const auto& launch : recipe.launches) {
    c10::SmallVector<uint64_t, 24> values;
    for (const auto& param : launch.params) {
      switch (param.kind) {
        case Param::Allocation: values.push_back(reinterpret_cast<uint64_t>(made[param.value].data_ptr())); break;
        case Param::Argument:
          values.push_back(reinterpret_cast<uint64_t>(arguments[param.value].toTensor().data_ptr()));
          break;
        case Param::Copy: values.push_back(reinterpret_cast<uint64_t>(copies[param.value].data_ptr())); break;
        case Param::Counter: values.push_back(reinterpret_cast<uint64_t>(counters[param.value])); break;
        case Param::Value: values.push_back(param.value); break;
      }
    }
    c10::SmallVector<void*, 24> params;
    for (auto& value : values) params.push_back(&value);
    const Configuration configuration{
        {launch.grid[0], launch.grid[1], launch.grid[2]}, {launch.threads, 1, 1}, launch.shared, stream,
        const_cast<Attribute*>(launch.attributes.data()), static_cast<unsigned>(launch.attributes.size())};
    if (const int code = driver.launch(&configuration, launch.function, params.data(), nullptr)) {
      const char* text = nullptr;
      if (driver.error) driver.error(code, &text);
      TORCH_CHECK(false, "Triton Error [CUDA]: ", text ? text : "launch failed with code ", text ? "" : std::to_string(code));
    }
  }

  c10::SmallVector<at::Tensor, 4> results;
  for (const auto& result : recipe.results) {
    if (!result)
      results.emplace_back();
    else
      results.push_back(result->kind == Param::Argument ? arguments[result->value].toTensor() : made[result->value]);
  }
  torch::jit::drop(*stack, argument_count);
  for (auto& result : results) stack->emplace_back(std::move(result));
  return Outcome::Done;
}

// ---------------------------------------------------------------- the way back to Python

py::object to_python(const c10::IValue& value, const c10::Argument& argument) {
  if (argument.real_type()->kind() == c10::TypeKind::OptionalType || value.isInt()) {
    auto type = argument.real_type();
    if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    if (type->kind() == c10::TypeKind::ScalarTypeType && value.isInt())
      return py::reinterpret_borrow<py::object>(
          reinterpret_cast<PyObject*>(torch::getTHPDtype(static_cast<at::ScalarType>(value.toInt()))));
  }
  return torch::jit::toPyObject(value);
}

at::Tensor to_tensor(py::handle object) {
  if (object.is_none()) return {};
  TORCH_CHECK(THPVariable_Check(object.ptr()), "an override must return tensors, not ", Py_TYPE(object.ptr())->tp_name);
  return THPVariable_Unpack(object.ptr());
}

void call_python(Operator& op, const c10::OperatorHandle& handle, Stack* stack, const Key* key) {
  const auto& schema = handle.schema();
  const auto& declared = schema.arguments();
  const auto values = torch::jit::pop(*stack, declared.size());
  py::gil_scoped_acquire gil;
  py::object name = py::none();
  if (key) name = py::bytes(reinterpret_cast<const char*>(key->data()), key->size() * sizeof(int64_t));
  py::list positional;
  positional.append(name);
  py::dict named;
  for (size_t i = 0; i < declared.size(); ++i) {
    if (declared[i].kwarg_only())
      named[declared[i].name().c_str()] = to_python(values[i], declared[i]);
    else
      positional.append(to_python(values[i], declared[i]));
  }
  auto result = py::reinterpret_steal<py::object>(
      PyObject_Call(op.python.ptr(), py::tuple(positional).ptr(), named.ptr()));
  if (!result) throw python_error();
  const size_t wanted = schema.returns().size();
  if (wanted == 1) {
    stack->emplace_back(to_tensor(result));
    return;
  }
  const auto results = py::reinterpret_borrow<py::sequence>(result);
  TORCH_CHECK(results.size() == wanted, "an override returned ", results.size(), " results instead of ", wanted);
  for (size_t i = 0; i < wanted; ++i) stack->emplace_back(to_tensor(py::object(results[i])));
}

struct Kernel : c10::OperatorKernel {
  explicit Kernel(Operator* op) : op_(op) {}

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet, Stack* stack) {
    Operator& op = *op_;
    const size_t count = handle.schema().arguments().size();
    Key key;
    if (op.is_observed() || !describe(torch::jit::last(*stack, count), key)) return call_python(op, handle, stack, nullptr);
    std::shared_ptr<const Recipe> recipe;
    if (!op.find(key, recipe)) return call_python(op, handle, stack, &key);
    if (!recipe) return call_python(op, handle, stack, nullptr);
    switch (replay(*recipe, count, stack)) {
      case Outcome::Done: op.replayed.fetch_add(1, std::memory_order_relaxed); return;
      case Outcome::Python: return call_python(op, handle, stack, nullptr);
      case Outcome::Stale: return call_python(op, handle, stack, &key);
    }
  }

 private:
  Operator* op_;
};

// In force until it is destroyed.
struct Registration {
  std::unique_ptr<torch::Library> library;
};

std::unique_ptr<Registration> register_kernel(const std::string& overload, const std::string& key, Operator* op) {
  auto library = std::make_unique<torch::Library>(
      torch::Library::IMPL, "aten", c10::parseDispatchKey(key), __FILE__, __LINE__);
  library->impl(overload.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(op)));
  return std::make_unique<Registration>(Registration{std::move(library)});
}

Operator* make_operator(py::object python, py::list hooks, py::dict levels) {
  auto* op = new Operator;
  op->python = std::move(python);
  op->hooks = hooks.release().ptr();
  op->levels = levels.release().ptr();
  operators.push_back(op);
  return op;
}

void add_launch(
    Recipe& recipe, uintptr_t function, std::array<unsigned, 3> grid, unsigned threads, unsigned shared,
    bool cooperative, bool overlapping, const std::vector<std::pair<int, uint64_t>>& params) {
  Launch launch{reinterpret_cast<void*>(function), grid, threads, shared, {}, {}};
  for (const auto& [wanted, id] : {std::pair{cooperative, COOPERATIVE}, {overlapping, PROGRAMMATIC_STREAM_SERIALIZATION}}) {
    if (!wanted) continue;
    Attribute attribute{};
    attribute.id = id;
    const int on = 1;
    std::memcpy(attribute.value, &on, sizeof on);
    launch.attributes.push_back(attribute);
  }
  for (const auto& [kind, value] : params) launch.params.push_back({static_cast<Param::Kind>(kind), value});
  recipe.launches.push_back(std::move(launch));
}

at::ScalarType dtype_of(py::handle dtype) { return reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type; }

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  pthread_atfork(nullptr, nullptr, renew_locks);

  py::class_<Recipe, std::shared_ptr<Recipe>>(m, "Recipe")
      .def(py::init([](const at::Device& device) {
        c10::OptionalDeviceGuard guard;
        if (device.is_cuda()) guard.reset_device(device);
        return Recipe{device, current_context(), {}, {}, {}, {}, {}};
      }))
      .def("allocate", [](Recipe& r, std::vector<int64_t> shape, std::vector<int64_t> strides, py::handle dtype) {
        r.allocations.push_back({std::move(shape), std::move(strides), dtype_of(dtype)});
      })
      .def("copy", [](Recipe& r, size_t argument) { r.copies.push_back(argument); })
      .def("count", [](Recipe& r, py::handle dtype, int64_t n) { r.counters.emplace_back(dtype_of(dtype), n); })
      .def("launch", &add_launch)
      .def("result", [](Recipe& r, std::optional<std::pair<int, uint64_t>> param) {
        if (param) r.results.push_back(Param{static_cast<Param::Kind>(param->first), param->second});
        else r.results.emplace_back();
      });

  py::class_<Operator, std::unique_ptr<Operator, py::nodelete>>(m, "Operator")
      .def(py::init(&make_operator))
      .def("put", [](Operator& op, const py::bytes& key, std::shared_ptr<Recipe> recipe) { op.put(key, recipe); })
      .def("set_quiet", [](Operator& op, bool quiet) { op.quiet = quiet; })
      .def_property_readonly("replayed", [](const Operator& op) { return op.replayed.load(); });

  py::class_<Registration>(m, "Registration").def("destroy", [](Registration& r) { r.library.reset(); });

  m.def("forget", &forget);
  m.def("register_kernel", torch::wrap_pybind_function(register_kernel));
  m.def("keep_buffer", [](const at::Tensor& tensor) {
    keep_buffer(current_stream(tensor.device()), tensor);
  });
  m.def("set_driver", [](uintptr_t launch, uintptr_t context, uintptr_t capturing, uintptr_t error, uintptr_t stream) {
    driver = {
        reinterpret_cast<decltype(driver.launch)>(launch), reinterpret_cast<decltype(driver.context)>(context),
        reinterpret_cast<decltype(driver.capturing)>(capturing), reinterpret_cast<decltype(driver.error)>(error),
        reinterpret_cast<decltype(driver.stream)>(stream)};
  });
}
