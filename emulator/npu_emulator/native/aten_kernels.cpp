// Every operator of the emulated NPU that has a CPU twin, and the recording and replay of ACL graphs.
//
// One boxed kernel replaces each PrivateUse1 kernel that torch_npu registers for aten and c10d: it presents the
// NPU tensors as CPU tensors over the same memory, calls the CPU kernel, and hands the results back as NPU
// tensors. View and allocation operators stay torch_npu's own. A second kernel stands for the fused operators
// without a reference implementation, and says their name. Must not know vLLM.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/extension.h>
#include <torch/library.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace {

using c10::DispatchKey;
using c10::IValue;
using c10::OperatorHandle;
using torch::jit::Stack;

// ---- the same memory, seen from both sides ---------------------------------------------------------------

bool on_npu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::PrivateUse1;
}

// A CPU tensor over the memory of an NPU tensor; it keeps that memory alive.
at::Tensor as_cpu(const at::Tensor& tensor) {
  if (!on_npu(tensor)) return tensor;
  const auto options = at::TensorOptions().dtype(tensor.dtype()).device(at::kCPU);
  if (tensor.numel() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), [tensor](void*) {}, options);
}

c10::DeviceIndex current_device() {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).getDevice().index();
}

// A new NPU tensor with the content and strides of a CPU tensor; a negative device is the current one.
at::Tensor to_npu(const at::Tensor& tensor, int device) {
  if (!tensor.defined() || tensor.device().type() != c10::DeviceType::CPU) return tensor;
  const c10::Device npu(c10::DeviceType::PrivateUse1,
                        device < 0 ? current_device() : static_cast<c10::DeviceIndex>(device));
  const auto options = at::TensorOptions().dtype(tensor.dtype()).device(npu);
  at::Tensor result = at::empty_strided(tensor.sizes(), tensor.strides(), options);
  if (tensor.numel()) as_cpu(result).copy_(tensor);
  return result;
}

// ---- graphs ----------------------------------------------------------------------------------------------

using Step = std::function<void()>;

struct Graph {
  std::vector<Step> steps;
  size_t groups = 0;   // task groups, whose arguments a caller may replace before a replay
  size_t updated = 0;  // of those, replaced since the last run
  bool waiting = false;
};

struct TaskGroup {
  void* graph;
  size_t begin, end;
};

struct Captures {
  std::mutex mutex;
  std::map<void*, Graph> graphs;
  std::map<void*, TaskGroup> groups;
  long captured = 0, replays = 0, mismatched_updates = 0;
};

Captures& captures() {
  static auto* all = new Captures;  // never destroyed: steps hold Python objects
  return *all;
}

thread_local Graph* recording_into = nullptr;
thread_local size_t group_begin = 0;
thread_local TaskGroup* updating = nullptr;
thread_local std::vector<Step>* update_steps = nullptr;
thread_local bool replaying = false;

bool recording() { return !replaying && (recording_into || updating); }

void record(Step step) {
  if (updating)
    update_steps->push_back(std::move(step));
  else if (recording_into)
    recording_into->steps.push_back(std::move(step));
}

void run(Graph& graph) {
  graph.waiting = false;
  graph.updated = 0;
  replaying = true;
  try {
    for (auto& step : graph.steps) step();
  } catch (...) {
    replaying = false;
    throw;
  }
  replaying = false;
  captures().replays++;
}

// A replay waits for the updates of its task groups, as the device does: they come after the launch.
void launch(Graph& graph) {
  if (graph.groups && graph.updated < graph.groups)
    graph.waiting = true;
  else
    run(graph);
}

// Something wants results now, or the next launch comes. A graph that still waits would wait for ever on the
// device: its attention would never learn the lengths of this step.
void expect_finished() {
  if (replaying || recording()) return;
  for (auto& entry : captures().graphs) {
    Graph& graph = entry.second;
    if (!graph.waiting) continue;
    const size_t missing = graph.groups - graph.updated;
    graph.waiting = false;
    graph.updated = 0;
    TORCH_CHECK(false, "ACL graph: a replay waits for ", missing, " of ", graph.groups,
                " task updates that never came; on the device it would not finish (update the graph's attention "
                "parameters after its replay)");
  }
}

void end_update() {
  auto& all = captures();
  TaskGroup group = *updating;
  updating = nullptr;
  auto found = all.graphs.find(group.graph);
  if (found == all.graphs.end()) return;
  Graph& graph = found->second;
  if (update_steps->size() != group.end - group.begin) {
    all.mismatched_updates++;
    TORCH_WARN("npu_emulator: a graph task update has ", update_steps->size(), " operations, its capture had ",
               group.end - group.begin);
  } else {
    std::copy(update_steps->begin(), update_steps->end(), graph.steps.begin() + group.begin);
  }
  graph.updated++;
  if (graph.waiting && graph.updated >= graph.groups) run(graph);
}

// ---- where the host waits ------------------------------------------------------------------------------------

thread_local bool stepping = false;  // this thread executes a step whose cost is wanted

py::object& wait_listener() {
  static auto* called = new py::object(py::none());
  return *called;
}

void tell_wait(const char* kind) {
  if (!stepping || replaying) return;
  py::gil_scoped_acquire gil;
  if (!wait_listener().is_none()) wait_listener()(kind);
}

bool picks_by_mask(const Stack& stack, size_t first) {
  if (!stack[first + 1].isOptionalTensorList()) return true;
  for (const c10::optional<at::Tensor>& index : stack[first + 1].toOptionalTensorVector())
    if (index && index->defined() && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte))
      return true;
  return false;
}

// How an operator keeps the host busy with the device; nothing where it is only put on a stream.
const char* wait_of(const OperatorHandle& op, const Stack& stack, size_t first) {
  if (op.hasTag(at::Tag::data_dependent_output)) return "value";
  if (op.hasTag(at::Tag::dynamic_output_shape))
    return op.operator_name().name != "aten::index" || picks_by_mask(stack, first) ? "shape" : nullptr;
  const std::string& name = op.operator_name().name;
  const bool to = name == "aten::_to_copy", from = name == "aten::_copy_from";
  if (name != "aten::copy_" && !to && !from) return nullptr;
  bool asynchronous = false, target = true;
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); i++) {
    const IValue& value = stack[first + i];
    if (arguments[i].name() == "non_blocking") asynchronous = value.toBool();
    if (arguments[i].name() == "device" && value.isDevice())
      target = value.toDevice().type() == c10::DeviceType::PrivateUse1;
  }
  bool source = on_npu(stack[first + (name == "aten::copy_")].toTensor());
  if (!to) target = on_npu(stack[first + from].toTensor());
  if (source == target) return nullptr;
  if (asynchronous) return source ? "copy to host, not waited for" : nullptr;
  return source ? "copy to host" : "copy from host";
}

enum Told { kBegin = 1, kEnd, kReplay, kGroupBegin, kGroupEnd, kUpdateBegin, kUpdateEnd, kDestroy, kWait };

void on_told(int what, void* handle) {
  auto& all = captures();
  switch (what) {
    case kBegin:
      recording_into = &(all.graphs[handle] = Graph());
      all.captured++;
      break;
    case kEnd:
      recording_into = nullptr;
      break;
    case kReplay:
      launch(all.graphs.at(handle));
      break;
    case kGroupBegin:
      group_begin = recording_into ? recording_into->steps.size() : 0;
      break;
    case kGroupEnd:
      if (!recording_into) break;
      for (auto& entry : all.graphs)
        if (&entry.second == recording_into)
          all.groups[handle] = {entry.first, group_begin, recording_into->steps.size()};
      recording_into->groups++;
      break;
    case kUpdateBegin: {
      if (!update_steps) update_steps = new std::vector<Step>;
      update_steps->clear();
      auto found = all.groups.find(handle);
      updating = found == all.groups.end() ? nullptr : &found->second;
      break;
    }
    case kUpdateEnd:
      if (updating) end_update();
      break;
    case kDestroy:
      all.graphs.erase(handle);
      break;
    case kWait:
      tell_wait("synchronise");
      break;
  }
}

// ---- random numbers ----------------------------------------------------------------------------------------

// A CPU generator that follows an NPU generator: the same seed and offset give the same numbers again.
at::Generator cpu_generator(at::Generator npu) {
  const std::lock_guard<std::mutex> guard(npu.mutex());
  uint64_t offset = 0;
  try {
    offset = npu.get_offset();
    npu.set_offset(offset + 4);
  } catch (const c10::Error&) {
    // a generator without offsets: its seed alone decides
  }
  at::Generator cpu = at::globalContext().defaultGenerator(at::kCPU).clone();
  cpu.set_current_seed(npu.current_seed() * 0x9E3779B97F4A7C15ULL + offset);
  return cpu;
}

bool is_generator(const c10::Argument& argument) {
  auto type = argument.type();
  if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type->kind() == c10::TypeKind::GeneratorType;
}

// ---- the boxed kernel ---------------------------------------------------------------------------------------

std::mutex calls_mutex;
std::map<std::string, long> calls;

std::string full_name(const OperatorHandle& op) {
  const auto& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

void count(const OperatorHandle& op) {
  const std::lock_guard<std::mutex> guard(calls_mutex);
  calls[full_name(op)]++;
}

// The arguments of one call, turned into CPU ones, and the way back.
struct Call {
  std::vector<std::pair<at::Tensor, at::Tensor>> twins;    // (NPU tensor, CPU tensor over its memory)
  std::vector<std::pair<at::Tensor, at::Tensor>> resized;  // empty outputs, which the CPU kernel may resize
  std::vector<at::Tensor> targets;                         // where a replay puts its results
  c10::optional<c10::Device> asked;                        // the device argument, if there is one
  int device = -1;                                         // of an NPU argument

  at::Tensor in(const at::Tensor& tensor, bool written) {
    if (!on_npu(tensor)) return tensor;
    device = tensor.device().index();
    const bool resizable = written && tensor.numel() == 0;
    at::Tensor cpu =
        resizable ? at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.dtype()).device(at::kCPU))
                  : as_cpu(tensor);
    if (resizable) resized.emplace_back(tensor, cpu);
    twins.emplace_back(tensor, cpu);
    return cpu;
  }

  at::Tensor out(const at::Tensor& tensor) {
    at::Tensor target;
    at::Tensor result = tensor;
    if (tensor.defined()) {
      if (const auto* known = twin_of(tensor)) {
        result = *known;
      } else if (!asked || asked->type() == c10::DeviceType::PrivateUse1) {
        result = to_npu(tensor, asked && asked->has_index() ? asked->index() : device);
        target = as_cpu(result);
      }
    }
    if (recording()) targets.push_back(target);
    return result;
  }

  const at::Tensor* twin_of(const at::Tensor& tensor) const {
    for (const auto& twin : twins)
      if (tensor.is_same(twin.second)) return &twin.first;
    for (const auto& twin : twins) {
      const bool same_place = tensor.numel() && twin.second.numel() &&
                              tensor.storage().data() == twin.second.storage().data() &&
                              tensor.data_ptr() == twin.second.data_ptr();
      if (same_place && tensor.sizes() == twin.second.sizes() && tensor.strides() == twin.second.strides())
        return &twin.first;
    }
    return nullptr;
  }

  void resize_outputs() {
    for (auto& [npu, cpu] : resized) {
      if (!cpu.numel()) continue;
      npu.resize_(cpu.sizes());
      as_cpu(npu).copy_(cpu);
    }
  }
};

void convert_argument(Call& call, const c10::Argument& argument, IValue& value) {
  const bool written = argument.alias_info() && argument.alias_info()->isWrite();
  if (is_generator(argument)) {
    if (!value.isNone() && value.toGenerator().device().type() == c10::DeviceType::PrivateUse1)
      value = cpu_generator(value.toGenerator());
  } else if (value.isTensor()) {
    value = call.in(value.toTensor(), written);
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> list;
    for (const auto& tensor : value.toTensorVector()) list.push_back(call.in(tensor, written));
    value = c10::List<at::Tensor>(list);
  } else if (value.isOptionalTensorList()) {
    c10::List<c10::optional<at::Tensor>> list;
    for (const c10::optional<at::Tensor>& tensor : value.toOptionalTensorList())
      list.push_back(tensor && tensor->defined() ? c10::optional<at::Tensor>(call.in(*tensor, written)) : tensor);
    value = list;
  } else if (value.isList() && value.toListRef().size() && value.toListRef()[0].isTensorList()) {
    c10::impl::GenericList lists(value.toList().elementType());  // c10d passes lists of lists
    for (const IValue& inner : value.toListRef()) {
      c10::List<at::Tensor> list;
      for (const auto& tensor : inner.toTensorVector()) list.push_back(call.in(tensor, written));
      lists.push_back(IValue(list));
    }
    value = lists;
  } else if (value.isDevice()) {
    call.asked = value.toDevice();
    value = c10::Device(at::kCPU);
  } else if (argument.name() == "pin_memory") {
    value = IValue();
  }
}

// Given from Python: torch_npu keeps its default generators there.
py::object& default_generator_of() {
  static auto* found = new py::object(py::none());
  return *found;
}

at::Generator default_generator(int device) {
  py::gil_scoped_acquire gil;
  return default_generator_of()(device < 0 ? current_device() : device).cast<at::Generator>();
}

// Random operators called without a generator use the device's default one.
void fill_generator(const c10::Argument& argument, int device, IValue& value) {
  if (!is_generator(argument) || !value.isNone()) return;
  value = cpu_generator(default_generator(device));
}

void convert_result(Call& call, IValue& value) {
  if (value.isTensor()) {
    value = call.out(value.toTensor());
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> list;
    for (const auto& tensor : value.toTensorVector()) list.push_back(call.out(tensor));
    value = c10::List<at::Tensor>(list);
  }
}

void call_cpu(const OperatorHandle& op, Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView guard;
  op.redispatchBoxed(c10::DispatchKeySet(DispatchKey::CPU), stack);
}

// A collective returns its work. On the device a replay orders it by streams; here it has to be waited for.
void wait(const IValue& value) {
  if (value.type()->isSubtypeOf(*c10::getCustomClassType<c10::intrusive_ptr<c10d::Work>>()))
    value.toCustomClass<c10d::Work>()->wait();
}

Step again(const OperatorHandle& op, std::vector<IValue> arguments, std::vector<at::Tensor> targets) {
  return [op, arguments = std::move(arguments), targets = std::move(targets)] {
    Stack stack(arguments.begin(), arguments.end());
    c10::InferenceMode inference(true);
    call_cpu(op, &stack);
    size_t next = 0;
    auto put = [&](const at::Tensor& result) {
      if (next < targets.size() && targets[next].defined()) targets[next].copy_(result);
      next++;
    };
    for (const IValue& value : stack) {
      if (value.isCustomClass()) wait(value);
      if (value.isTensor()) put(value.toTensor());
      else if (value.isTensorList())
        for (const auto& tensor : value.toTensorVector()) put(tensor);
    }
  };
}

bool reads_back(const OperatorHandle& op, const Stack& stack, size_t first) {
  const std::string& name = op.operator_name().name;
  if (name == "aten::_local_scalar_dense") return true;
  if (name != "aten::copy_" && name != "aten::_to_copy" && name != "aten::_copy_from") return false;
  for (size_t i = first; i < stack.size(); i++)
    if (stack[i].isTensor() && stack[i].toTensor().defined() && !on_npu(stack[i].toTensor())) return true;
  return name == "aten::_to_copy";
}

// The device sends what a tensor holds at this place of its stream; gloo would send what it holds later.
void keep_as_it_is(IValue& tensors) {
  std::vector<at::Tensor> copies;
  for (const auto& tensor : tensors.toTensorVector()) copies.push_back(tensor.clone());
  tensors = c10::List<at::Tensor>(copies);
}

void on_cpu(const OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  count(op);
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  if (reads_back(op, *stack, first)) expect_finished();
  if (stepping)
    if (const char* kind = wait_of(op, *stack, first)) tell_wait(kind);
  Call call;
  for (size_t i = 0; i < arguments.size(); i++) convert_argument(call, arguments[i], (*stack)[first + i]);
  for (size_t i = 0; i < arguments.size(); i++) fill_generator(arguments[i], call.device, (*stack)[first + i]);
  std::vector<IValue> recorded;
  if (recording()) recorded.assign(stack->begin() + first, stack->end());
  if (op.operator_name().name == "c10d::send") keep_as_it_is((*stack)[first]);
  call_cpu(op, stack);
  call.resize_outputs();
  const size_t results = op.schema().returns().size();
  for (size_t i = stack->size() - results; i < stack->size(); i++) convert_result(call, (*stack)[i]);
  if (recording()) record(again(op, std::move(recorded), std::move(call.targets)));
}

// ---- operators without a reference ---------------------------------------------------------------------------

py::object& missing_listener() {
  static auto* called = new py::object(py::none());
  return *called;
}

void no_reference(const OperatorHandle& op, c10::DispatchKeySet, Stack*) {
  const std::string name = full_name(op);
  {
    py::gil_scoped_acquire gil;
    if (!missing_listener().is_none()) missing_listener()(name);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "npu_emulator has no reference implementation of ", name);
}

// ---- installation ---------------------------------------------------------------------------------------------

std::vector<std::unique_ptr<torch::Library>>& libraries() {
  static auto* all = new std::vector<std::unique_ptr<torch::Library>>;
  return *all;
}

torch::Library& library(const std::string& name) {
  libraries().push_back(std::make_unique<torch::Library>(torch::Library::IMPL, name, DispatchKey::PrivateUse1,
                                                         __FILE__, __LINE__));
  return *libraries().back();
}

// Allocation, views and metadata: torch_npu's own kernels do these, with its storage and its allocator.
bool is_kept(const std::string& name) {
  static const std::set<std::string> kept = {
      "empty", "empty_strided", "empty_like", "new_empty_strided", "resize_", "resize_as_", "set_", "as_strided",
      "as_strided_", "view", "_reshape_alias", "is_set_to", "is_pinned", "_pin_memory", "record_stream",
      "_copy_from_and_resize", "view_as_real", "view_as_complex", "empty_with_format",
      "unsafe_empty_with_format", "empty_with_swapped_memory", "_has_compatible_shallow_copy_type"};
  return kept.count(name) || name.find("npu") != std::string::npos;
}

bool returns_view(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns())
    if (result.alias_info() && !result.alias_info()->isWrite()) return true;
  return false;
}

size_t install_on_cpu(const std::string& space) {
  auto& dispatcher = c10::Dispatcher::singleton();
  auto& target = library(space);
  size_t installed = 0;
  for (const auto& name : dispatcher.getRegistrationsForDispatchKey(DispatchKey::PrivateUse1)) {
    if (name.name.rfind(space + "::", 0) != 0) continue;
    const std::string bare = name.name.substr(space.size() + 2);
    const auto handle = dispatcher.findSchema(name);
    if (!handle || is_kept(bare) || returns_view(handle->schema())) continue;
    const std::string full = name.overload_name.empty() ? bare : bare + "." + name.overload_name;
    target.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&on_cpu>());
    installed++;
  }
  return installed;
}

// Give every operator of `space` that is not in `known` the kernel that says its name.
size_t install_no_reference(const std::string& space, const std::set<std::string>& known) {
  auto& target = library(space);
  size_t installed = 0;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind(space + "::", 0) != 0) continue;
    const std::string bare = name.name.substr(space.size() + 2);
    const std::string full = name.overload_name.empty() ? bare : bare + "." + name.overload_name;
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (known.count(full) || !handle || handle->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd))
      continue;
    target.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&no_reference>());
    installed++;
  }
  return installed;
}

// A Python step of a graph: kept and dropped under the GIL, which a replay does not hold.
Step python_step(py::object function) {
  auto held = std::shared_ptr<py::object>(new py::object(std::move(function)), [](py::object* object) {
    py::gil_scoped_acquire gil;
    delete object;
  });
  return [held] {
    py::gil_scoped_acquire gil;
    (*held)();
  };
}

bool listen_to_captures() {
  void* runtime = dlopen("libascendcl.so", RTLD_NOW | RTLD_NOLOAD);
  if (!runtime) return false;
  auto listen = reinterpret_cast<void (*)(void (*)(int, void*))>(dlsym(runtime, "npu_emulator_listen"));
  if (listen) listen(&on_told);
  return listen != nullptr;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("listen_to_captures", &listen_to_captures);
  module.def("install_on_cpu", &install_on_cpu);
  module.def("install_no_reference", &install_no_reference);
  module.def("use_default_generators",
             [](py::object function) { default_generator_of() = std::move(function); });
  module.def("on_missing", [](py::object function) { missing_listener() = std::move(function); });
  module.def("on_wait", [](py::object function) { wait_listener() = std::move(function); });
  module.def("stepping", [](bool now) { stepping = now; });
  module.def("as_cpu", &as_cpu);
  module.def("to_npu", &to_npu, py::arg("tensor"), py::arg("device") = -1);
  module.def("recording", &recording);
  module.def("record", [](py::object function) { record(python_step(std::move(function))); });
  module.def("calls", [] {
    const std::lock_guard<std::mutex> guard(calls_mutex);
    return calls;
  });
  module.def("graphs", [] {
    auto& all = captures();
    return std::map<std::string, long>{
        {"captured", all.captured}, {"replayed", all.replays}, {"mismatched_updates", all.mismatched_updates}};
  });
}
