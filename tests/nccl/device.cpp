#include "device.hpp"

#include "support/covers.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string_view>
#include <thread>

namespace tutti::test {
namespace {

// Adds a number to each of `count` integers, for any GPU since 2014.
constexpr const char* add_kernel = R"(
.version 6.0
.target sm_50
.address_size 64
.visible .entry add_int64(.param .u64 data, .param .u64 value, .param .u32 count)
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [data];
    ld.param.u64 %rd2, [value];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra done;
    cvta.to.global.u64 %rd3, %rd1;
    mul.wide.u32 %rd4, %r5, 8;
    add.s64 %rd5, %rd3, %rd4;
    ld.global.u64 %rd6, [%rd5];
    add.s64 %rd7, %rd6, %rd2;
    st.global.u64 [%rd5], %rd7;
done:
    ret;
}
)";

void check(int result, const char* function) {
    if (result != 0)
        throw std::runtime_error(std::string(function) + " of the test's own returned " + std::to_string(result));
}

template <class F>
void resolve(void* library, F& function, const char* name, bool needed = true) {
    function = reinterpret_cast<F>(::dlsym(library, name));
    if (needed && function == nullptr) throw std::runtime_error(std::string("the CUDA driver has no ") + name);
}

Cuda open() {
    const char* named = std::getenv("TUTTI_CUDA_LIB");
    const std::string file = named != nullptr && *named != '\0' ? named : "libcuda.so.1";
    void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) throw std::runtime_error("there is no CUDA driver: " + std::string(::dlerror()));
    Cuda c{};
    resolve(library, c.Init, "cuInit");
    resolve(library, c.DeviceGetCount, "cuDeviceGetCount");
    resolve(library, c.DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
    resolve(library, c.DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2");
    resolve(library, c.CtxSetCurrent, "cuCtxSetCurrent");
    resolve(library, c.CtxSynchronize, "cuCtxSynchronize");
    resolve(library, c.StreamCreate, "cuStreamCreate");
    resolve(library, c.StreamDestroy, "cuStreamDestroy_v2");
    resolve(library, c.StreamSynchronize, "cuStreamSynchronize");
    resolve(library, c.StreamWaitEvent, "cuStreamWaitEvent");
    resolve(library, c.LaunchHostFunc, "cuLaunchHostFunc");
    resolve(library, c.EventCreate, "cuEventCreate");
    resolve(library, c.EventDestroy, "cuEventDestroy_v2");
    resolve(library, c.EventRecord, "cuEventRecord");
    resolve(library, c.StreamBeginCapture, "cuStreamBeginCapture_v2");
    resolve(library, c.StreamEndCapture, "cuStreamEndCapture");
    resolve(library, c.GraphInstantiate, "cuGraphInstantiateWithFlags");
    resolve(library, c.GraphLaunch, "cuGraphLaunch");
    resolve(library, c.GraphExecDestroy, "cuGraphExecDestroy");
    resolve(library, c.GraphDestroy, "cuGraphDestroy");
    resolve(library, c.MemAlloc, "cuMemAlloc_v2");
    resolve(library, c.MemFree, "cuMemFree_v2");
    resolve(library, c.MemAllocHost, "cuMemAllocHost_v2");
    resolve(library, c.MemFreeHost, "cuMemFreeHost");
    resolve(library, c.MemcpyAsync, "cuMemcpyAsync");
    resolve(library, c.fake_launch, "fakeCudaLaunch", false);
    resolve(library, c.ModuleLoadData, "cuModuleLoadData", !c.is_fake());
    resolve(library, c.ModuleGetFunction, "cuModuleGetFunction", !c.is_fake());
    resolve(library, c.LaunchKernel, "cuLaunchKernel", !c.is_fake());
    resolve(library, c.fake_set_faults, "fakeCudaSetFaults", c.is_fake());
    resolve(library, c.fake_set_delay, "fakeCudaSetDelay", c.is_fake());
    resolve(library, c.fake_calls, "fakeCudaCalls", c.is_fake());
    resolve(library, c.fake_live, "fakeCudaLive", c.is_fake());
    resolve(library, c.fake_streams_of_priority, "fakeCudaStreamsOfPriority", c.is_fake());
    return c;
}

CUstream handle_of(Stream stream) {
    return static_cast<CUstream>(stream.handle);
}
CUdeviceptr address_of(const void* memory) {
    return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(memory));
}
void* pointer_to(CUdeviceptr memory) {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(memory));
}

void run_function(void* held) {
    (*static_cast<std::function<void()>*>(held))();
}

}  // namespace

const Cuda& cuda() {
    static const Cuda one = open();
    return one;
}

int Cuda::device_count() const {
    int count = 0;
    check(Init(0), "cuInit");
    check(DeviceGetCount(&count), "cuDeviceGetCount");
    return count;
}

std::string gpu_backend() {
    const char* named = std::getenv("TUTTI_TEST_GPU");
    return named != nullptr && *named != '\0' ? named : "cuda:nccl";
}

Device::Type gpu_kind() {
    const std::string kind = gpu_backend().substr(0, gpu_backend().find(':'));
    if (kind == "rocm") return Device::Type::rocm;
    if (kind == "npu") return Device::Type::npu;
    return kind == "xpu" ? Device::Type::xpu : Device::Type::cuda;
}

void covers_on_gpu(std::initializer_list<const char*> rows) {
    if (cuda().is_fake()) return;
    for (const char* row : rows) covers(row);
}

Flag::Flag()
    : set_(new (::mmap(nullptr, sizeof *set_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
               std::atomic<bool>(false)) {}
Flag::~Flag() {
    ::munmap(set_, sizeof *set_);
}
void Flag::set() {
    *set_ = true;
}
bool Flag::is_set() const {
    return *set_;
}
bool Flag::wait(std::chrono::milliseconds limit) const {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (!*set_ && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(500us);
    return *set_;
}

Gpu::Gpu(int index) : index_(index) {
    check(cuda().Init(0), "cuInit");
    check(cuda().DevicePrimaryCtxRetain(&context_, index), "cuDevicePrimaryCtxRetain");
    use();
}

Gpu::~Gpu() {
    cuda().CtxSetCurrent(context_);
    cuda().CtxSynchronize();
    for (CUevent event : events_) cuda().EventDestroy(event);
    for (CUstream stream : streams_) cuda().StreamDestroy(stream);
    for (CUdeviceptr memory : memory_) cuda().MemFree(memory);
    for (void* memory : host_memory_) cuda().MemFreeHost(memory);
    cuda().CtxSetCurrent(nullptr);
    cuda().DevicePrimaryCtxRelease(index_);
}

void Gpu::use() const {
    check(cuda().CtxSetCurrent(context_), "cuCtxSetCurrent");
}

Stream Gpu::make_stream() const {
    CUstream stream = nullptr;
    check(cuda().StreamCreate(&stream, 1), "cuStreamCreate");
    streams_.push_back(stream);
    return {stream};
}

void Gpu::make_wait(Stream later, Stream stream) const {
    CUevent event = nullptr;
    check(cuda().EventCreate(&event, 2), "cuEventCreate");
    events_.push_back(event);
    check(cuda().EventRecord(event, handle_of(stream)), "cuEventRecord");
    check(cuda().StreamWaitEvent(handle_of(later), event, 0), "cuStreamWaitEvent");
}

void Gpu::wait_for(Stream stream) const {
    check(cuda().StreamSynchronize(handle_of(stream)), "cuStreamSynchronize");
}

void Gpu::add(Stream stream, void* data, std::int64_t value, unsigned count) const {
    if (cuda().is_fake()) {
        functions_.emplace_back([data, value, count] {
            for (unsigned i = 0; i < count; ++i) static_cast<std::int64_t*>(data)[i] += value;
        });
        check(cuda().fake_launch(handle_of(stream), run_function, &functions_.back()), "fakeCudaLaunch");
        return;
    }
    if (kernel_ == nullptr) {
        void* module = nullptr;
        check(cuda().ModuleLoadData(&module, add_kernel), "cuModuleLoadData");
        check(cuda().ModuleGetFunction(&kernel_, module, "add_int64"), "cuModuleGetFunction");
    }
    CUdeviceptr address = address_of(data);
    void* arguments[] = {&address, &value, &count};
    check(cuda().LaunchKernel(kernel_, (count + 127) / 128, 1, 1, 128, 1, 1, 0, handle_of(stream), arguments, nullptr),
          "cuLaunchKernel");
}

void Gpu::call(Stream stream, std::function<void()> function) const {
    functions_.push_back(std::move(function));
    check(cuda().LaunchHostFunc(handle_of(stream), run_function, &functions_.back()), "cuLaunchHostFunc");
}

GpuGraph::GpuGraph(const Gpu& gpu, Stream stream, const std::function<void()>& put_in, Mode mode) {
    gpu.use();
    check(cuda().StreamBeginCapture(handle_of(stream), static_cast<int>(mode)), "cuStreamBeginCapture");
    try {
        put_in();
    } catch (...) {
        cuda().StreamEndCapture(handle_of(stream), &graph_);
        if (graph_ != nullptr) cuda().GraphDestroy(graph_);
        throw;
    }
    error_ = cuda().StreamEndCapture(handle_of(stream), &graph_);
    if (error_ == 0) error_ = cuda().GraphInstantiate(&exec_, graph_, 0);
}

GpuGraph::~GpuGraph() {
    if (exec_ != nullptr) cuda().GraphExecDestroy(exec_);
    if (graph_ != nullptr) cuda().GraphDestroy(graph_);
}

void GpuGraph::run(Stream stream) const {
    check(cuda().GraphLaunch(exec_, handle_of(stream)), "cuGraphLaunch");
}

void* Gpu::staging(std::size_t bytes) const {
    void* memory = nullptr;
    check(cuda().MemAllocHost(&memory, bytes), "cuMemAllocHost");
    host_memory_.push_back(memory);
    return memory;
}

void* Gpu::memory(const Tensor& values, Stream stream) const {
    CUdeviceptr memory = 0;
    const std::size_t bytes = values.byte_count();
    check(cuda().MemAlloc(&memory, std::max<std::size_t>(bytes, 1)), "cuMemAlloc");
    memory_.push_back(memory);
    if (bytes > 0) {
        void* from = staging(bytes);
        std::memcpy(from, values.raw_data(), bytes);
        check(cuda().MemcpyAsync(memory, address_of(from), bytes, handle_of(stream)), "cuMemcpyAsync");
    }
    return pointer_to(memory);
}

Tensor Gpu::read(const void* memory, const Tensor& like, Stream stream) const {
    Tensor values = empty(like.dtype(), like.shape());
    if (values.byte_count() == 0) return values;
    void* to = staging(values.byte_count());
    check(cuda().MemcpyAsync(address_of(to), address_of(memory), values.byte_count(), handle_of(stream)),
          "cuMemcpyAsync");
    wait_for(stream);
    std::memcpy(values.raw_data(), to, values.byte_count());
    return values;
}

namespace {

bool is_set(const char* variable, const char* to) {
    const char* value = std::getenv(variable);
    return value != nullptr && std::string(value) == to;
}

void run_on_gpu(const Store& store, int rank, int size, const GpuBody& body, const GpuWorld& world) {
    const int wanted = world.devices.empty() ? rank : world.devices[static_cast<std::size_t>(rank)];
    const Gpu gpu(wanted % cuda().device_count());
    ProcessGroupOptions options{.store = PrefixStore(world.name, store),
                                .rank = rank,
                                .world_size = size,
                                .timeout = world.timeout,
                                .name = world.name,
                                .determinism = world.determinism,
                                .backend = world.backend,
                                .pg_options = world.pg_options};
    if (world.bound) options.device_id = gpu.device();
    ProcessGroup group(options);
    body(group, gpu);
    group.destroy();
}

}  // namespace

bool ranks_are_processes() {
    return is_set("GPU_TEST_RANKS", "processes");
}

void on_gpus(int size, const GpuBody& body, const GpuWorld& world) {
    if (ranks_are_processes()) {
        const TemporaryFolder folder;
        const bool hosts = is_set("GPU_TEST_HOSTS", "1");
        const auto variables = [&](int rank) {
            return hosts ? Variables{{"NCCL_HOSTID", "test-host-" + std::to_string(rank)}} : Variables{};
        };
        return in_processes(size, variables, [&](int rank) {
            run_on_gpu(FileStore(folder.path() + "/store", size), rank, size, body, world);
        });
    }
    const HashStore store;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                run_on_gpu(store, rank, size, body, world);
            } catch (const std::exception& error) {
                ADD_FAILURE() << "rank " << rank << " of " << size << ": " << error.what();
            }
        });
    }
    for (auto& thread : threads) thread.join();
}

std::string loaded_file(const std::string& name) {
    std::pair<std::string, std::string> wanted_and_found{"/" + name, ""};
    ::dl_iterate_phdr(
        [](dl_phdr_info* object, std::size_t, void* data) {
            auto& [wanted, found] = *static_cast<std::pair<std::string, std::string>*>(data);
            if (std::string_view(object->dlpi_name).ends_with(wanted)) found = object->dlpi_name;
            return 0;
        },
        &wanted_and_found);
    return wanted_and_found.second;
}

TemporaryFolder::TemporaryFolder() {
    std::string pattern = ::testing::TempDir() + "tutti_nccl_XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder could be made");
    path_ = pattern;
}
TemporaryFolder::~TemporaryFolder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
}

void in_processes(int count, const std::function<Variables(int)>& variables, const std::function<void(int)>& f) {
    constexpr unsigned limit_s = 60;
    std::fflush(nullptr);
    std::vector<pid_t> children;
    for (int i = 0; i < count; ++i) {
        const pid_t child = ::fork();
        if (child != 0) {
            children.push_back(child);
            continue;
        }
        ::alarm(limit_s);
        for (const auto& [name, value] : variables(i)) ::setenv(name.c_str(), value.c_str(), 1);
        int status = 1;
        try {
            f(i);
            status = ::testing::Test::HasFailure() ? 1 : 0;
        } catch (const std::exception& error) {
            std::fprintf(stderr, "process %d: %s\n", i, error.what());
        }
        std::fflush(nullptr);
        ::_exit(status);
    }
    for (int i = 0; i < count; ++i) {
        int status = 0;
        ::waitpid(children[static_cast<std::size_t>(i)], &status, 0);
        EXPECT_EQ(status, 0) << "process " << i << " of " << count << (WIFSIGNALED(status) ? ", by a signal" : "");
    }
}

}  // namespace tutti::test
