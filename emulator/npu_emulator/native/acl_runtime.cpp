// The Ascend Computing Language runtime on a machine without an NPU: libascendcl.so.
//
// Written against the ACL headers that the torch_npu wheel ships, so that the compiler checks every signature.
// Device memory is host memory under a per-device budget. Streams and events exist but order nothing: each
// operation has finished when its call returns. A graph capture is a notification to the operator library
// (aten_kernels.cpp), which knows what ran. Must not know torch, an operator or vLLM.
#include <acl/acl.h>
#include <acl/acl_rt.h>
#include <acl/acl_op_compiler.h>
#include <malloc.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

constexpr aclError kOk = ACL_SUCCESS;
constexpr aclError kOutOfMemory = 207001;  // ACL_ERROR_RT_MEMORY_ALLOCATION
constexpr size_t kAlignment = 512;
constexpr int kMostDevices = 16;
constexpr int kCores = 24;  // of an Ascend 910B3

thread_local int current_device = 0;
int contexts[kMostDevices];
std::atomic<int64_t> bytes_in_use{0};

int64_t setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoll(text) : otherwise;
}

int64_t device_count() { return setting("NPU_EMULATOR_DEVICES", 1); }

int64_t device_bytes() {
  static const int64_t total = setting("NPU_EMULATOR_MEMORY_MB", 4096) << 20;
  return total;
}

// Each handle the caller gets is an allocation of its own, so that two are never equal.
template <typename Handle>
aclError new_handle(Handle* handle) {
  *handle = reinterpret_cast<Handle>(std::calloc(1, 64));
  return *handle ? kOk : kOutOfMemory;
}

bool take(int64_t bytes) {
  if (bytes_in_use.fetch_add(bytes) + bytes <= device_bytes()) return true;
  bytes_in_use -= bytes;
  return false;
}

aclError device_malloc(void** pointer, size_t bytes) {
  if (!take(static_cast<int64_t>(bytes))) return kOutOfMemory;
  if (posix_memalign(pointer, kAlignment, bytes ? bytes : kAlignment)) {
    bytes_in_use -= static_cast<int64_t>(bytes);
    return kOutOfMemory;
  }
  // what the allocator really gave is what free() will hand back
  bytes_in_use += static_cast<int64_t>(malloc_usable_size(*pointer)) - static_cast<int64_t>(bytes);
  return kOk;
}

double milliseconds() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

// What the operator library is told: of a capture, with the handle of the graph or of the task group, and that the
// host waits for the device.
enum Told { kBegin = 1, kEnd, kReplay, kGroupBegin, kGroupEnd, kUpdateBegin, kUpdateEnd, kDestroy, kWait };
using Listener = void (*)(int, void*);
Listener listener = nullptr;
thread_local aclmdlRI capturing = nullptr;

void tell(Told what, void* handle) {
  if (listener) listener(what, handle);
}

aclError wait() {
  tell(kWait, nullptr);
  return kOk;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) void npu_emulator_listen(Listener new_listener) { listener = new_listener; }

// Device and context
aclError aclInit(const char*) { return kOk; }
aclError aclFinalize() { return kOk; }
const char* aclGetRecentErrMsg() { return "npu_emulator: the emulated CANN has no such function"; }
const char* aclrtGetSocName() {
  const char* name = std::getenv("NPU_EMULATOR_SOC");
  return name && *name ? name : "Ascend910B3";
}
aclError aclrtGetDeviceCount(uint32_t* count) {
  *count = static_cast<uint32_t>(device_count());
  return kOk;
}
aclError aclrtSetDevice(int32_t device) {
  current_device = device;
  return kOk;
}
aclError aclrtGetDevice(int32_t* device) {
  *device = current_device;
  return kOk;
}
aclError aclrtResetDevice(int32_t) { return kOk; }
aclError aclrtGetCurrentContext(aclrtContext* context) {
  *context = &contexts[current_device];
  return kOk;
}
aclError aclrtSetCurrentContext(aclrtContext context) {
  if (context) current_device = static_cast<int>(static_cast<int*>(context) - contexts);
  return kOk;
}
aclError aclrtGetPrimaryCtxState(int32_t, uint32_t* flags, int32_t* active) {
  if (flags) *flags = 0;
  if (active) *active = 1;
  return kOk;
}
aclError aclrtDeviceCanAccessPeer(int32_t* can, int32_t, int32_t) {
  *can = 1;
  return kOk;
}
aclError aclrtGetDeviceInfo(uint32_t, aclrtDevAttr, int64_t* value) {
  *value = kCores;
  return kOk;
}
aclError aclrtGetLastError(aclrtLastErrLevel) { return kOk; }
aclError aclrtPeekAtLastError(aclrtLastErrLevel) { return kOk; }
aclError aclrtDeviceGetBareTgid(int32_t* pid) {
  *pid = 1;
  return kOk;
}
aclError aclrtGetSysParamOpt(aclSysParamOpt, int64_t* value) {
  *value = 0;
  return kOk;
}
aclError aclGetCompileopt(aclCompileOpt, char* value, size_t length) {
  if (length) value[0] = 0;
  return kOk;
}
size_t aclGetCompileoptSize(aclCompileOpt) { return 16; }

// Settings without an effect here
aclError aclSetCompileopt(aclCompileOpt, const char*) { return kOk; }
aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode) { return kOk; }
aclError aclrtSetOpExecuteTimeOut(uint32_t) { return kOk; }
aclError aclrtSetOpWaitTimeout(uint32_t) { return kOk; }
aclError aclrtSetStreamFailureMode(aclrtStream, uint64_t) { return kOk; }
aclError aclrtSetStreamAttribute(aclrtStream, aclrtStreamAttr, aclrtStreamAttrValue*) { return kOk; }
aclError aclrtSetSysParamOpt(aclSysParamOpt, int64_t) { return kOk; }
aclError aclrtCtxSetSysParamOpt(aclSysParamOpt, int64_t) { return kOk; }

// Memory
aclError aclrtMalloc(void** pointer, size_t bytes, aclrtMemMallocPolicy) { return device_malloc(pointer, bytes); }
aclError aclrtMallocAlign32(void** pointer, size_t bytes, aclrtMemMallocPolicy) {
  return device_malloc(pointer, bytes);
}
aclError aclrtFree(void* pointer) {
  if (pointer) bytes_in_use -= static_cast<int64_t>(malloc_usable_size(pointer));
  std::free(pointer);
  return kOk;
}
aclError aclrtMallocHost(void** pointer, size_t bytes) {
  return posix_memalign(pointer, kAlignment, bytes ? bytes : kAlignment) ? kOutOfMemory : kOk;
}
aclError aclrtFreeHost(void* pointer) {
  std::free(pointer);
  return kOk;
}
aclError aclrtMemcpy(void* to, size_t, const void* from, size_t bytes, aclrtMemcpyKind) {
  std::memmove(to, from, bytes);
  return kOk;
}
aclError aclrtMemcpyAsync(void* to, size_t, const void* from, size_t bytes, aclrtMemcpyKind, aclrtStream) {
  std::memmove(to, from, bytes);
  return kOk;
}
aclError aclrtMemset(void* to, size_t, int32_t value, size_t bytes) {
  std::memset(to, value, bytes);
  return kOk;
}
aclError aclrtMemsetAsync(void* to, size_t, int32_t value, size_t bytes, aclrtStream) {
  std::memset(to, value, bytes);
  return kOk;
}
aclError aclrtGetMemInfo(aclrtMemAttr, size_t* free_bytes, size_t* total_bytes) {
  const int64_t left = device_bytes() - bytes_in_use;
  *total_bytes = static_cast<size_t>(device_bytes());
  *free_bytes = static_cast<size_t>(left > 0 ? left : 0);
  return kOk;
}
// Virtual addresses are real memory once touched; physical handles only count against the budget.
aclError aclrtReserveMemAddress(void** address, size_t bytes, size_t, void*, uint64_t) {
  *address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return *address == MAP_FAILED ? kOutOfMemory : kOk;
}
aclError aclrtReleaseMemAddress(void*) { return kOk; }
aclError aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t bytes, const aclrtPhysicalMemProp*, uint64_t) {
  if (!take(static_cast<int64_t>(bytes))) return kOutOfMemory;
  auto* size = static_cast<size_t*>(std::malloc(sizeof(size_t)));
  *size = bytes;
  *handle = reinterpret_cast<aclrtDrvMemHandle>(size);
  return kOk;
}
aclError aclrtFreePhysical(aclrtDrvMemHandle handle) {
  if (!handle) return kOk;
  bytes_in_use -= static_cast<int64_t>(*reinterpret_cast<size_t*>(handle));
  std::free(handle);
  return kOk;
}
aclError aclrtMapMem(void*, size_t, size_t, aclrtDrvMemHandle, uint64_t) { return kOk; }
aclError aclrtUnmapMem(void*) { return kOk; }

// Streams and events
aclError aclrtCreateStream(aclrtStream* stream) { return new_handle(stream); }
aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t, uint32_t) { return new_handle(stream); }
aclError aclrtDestroyStream(aclrtStream) { return kOk; }
aclError aclrtDestroyStreamForce(aclrtStream) { return kOk; }
aclError aclrtSynchronizeStream(aclrtStream) { return wait(); }
aclError aclrtSynchronizeStreamWithTimeout(aclrtStream, int32_t) { return wait(); }
aclError aclrtSynchronizeDevice() { return wait(); }
aclError aclrtSynchronizeDeviceWithTimeout(int32_t) { return wait(); }
aclError aclrtStreamQuery(aclrtStream, aclrtStreamStatus* status) {
  *status = ACL_STREAM_STATUS_COMPLETE;
  return kOk;
}
aclError aclrtStreamGetId(aclrtStream, int32_t* id) {
  *id = 1;
  return kOk;
}
aclError aclrtCreateEvent(aclrtEvent* event) { return new_handle(event); }
aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t) { return new_handle(event); }
aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t) { return new_handle(event); }
aclError aclrtDestroyEvent(aclrtEvent event) {
  std::free(event);
  return kOk;
}
aclError aclrtRecordEvent(aclrtEvent event, aclrtStream) {
  *static_cast<double*>(event) = milliseconds();
  return kOk;
}
aclError aclrtResetEvent(aclrtEvent, aclrtStream) { return kOk; }
aclError aclrtStreamWaitEvent(aclrtStream, aclrtEvent) { return kOk; }
aclError aclrtSynchronizeEvent(aclrtEvent) { return wait(); }
aclError aclrtQueryEventStatus(aclrtEvent, aclrtEventRecordedStatus* status) {
  *status = ACL_EVENT_RECORDED_STATUS_COMPLETE;
  return kOk;
}
aclError aclrtQueryEventWaitStatus(aclrtEvent, aclrtEventWaitStatus* status) {
  *status = ACL_EVENT_WAIT_STATUS_COMPLETE;
  return kOk;
}
aclError aclrtEventElapsedTime(float* elapsed, aclrtEvent start, aclrtEvent end) {
  *elapsed = static_cast<float>(*static_cast<double*>(end) - *static_cast<double*>(start));
  return kOk;
}

// Graph capture (ACL graphs). A task group is a stretch of captured work whose arguments may be replaced
// before a replay: attention's sequence lengths.
aclError aclmdlRICaptureBegin(aclrtStream, aclmdlRICaptureMode) {
  new_handle(&capturing);
  tell(kBegin, capturing);
  return kOk;
}
aclError aclmdlRICaptureEnd(aclrtStream, aclmdlRI* graph) {
  *graph = capturing;
  tell(kEnd, capturing);
  capturing = nullptr;
  return kOk;
}
aclError aclmdlRICaptureGetInfo(aclrtStream, aclmdlRICaptureStatus* status, aclmdlRI* graph) {
  *status = capturing ? ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE : ACL_MODEL_RI_CAPTURE_STATUS_NONE;
  if (graph) *graph = capturing;
  return kOk;
}
aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode*) { return kOk; }
aclError aclmdlRIExecuteAsync(aclmdlRI graph, aclrtStream) {
  tell(kReplay, graph);
  return kOk;
}
aclError aclmdlRIDestroy(aclmdlRI graph) {
  tell(kDestroy, graph);
  return kOk;
}
aclError aclmdlRIGetId(aclmdlRI, uint32_t* id) {
  *id = 1;
  return kOk;
}
aclError aclmdlRICaptureTaskGrpBegin(aclrtStream) {
  tell(kGroupBegin, nullptr);
  return kOk;
}
aclError aclmdlRICaptureTaskGrpEnd(aclrtStream, aclrtTaskGrp* group) {
  new_handle(group);
  tell(kGroupEnd, *group);
  return kOk;
}
aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream, aclrtTaskGrp group) {
  tell(kUpdateBegin, group);
  return kOk;
}
aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream) {
  tell(kUpdateEnd, nullptr);
  return kOk;
}

}  // extern "C"
