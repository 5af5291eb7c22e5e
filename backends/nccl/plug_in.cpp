#include "nccl/plug_in.hpp"

#include "nccl/collectives.hpp"
#include "nccl/context.hpp"
#include "nccl/host_fallback.hpp"
#include "nccl/meeting.hpp"
#include "nccl/messages.hpp"
#include "nccl/with_title.hpp"

#include <tutti/error.hpp>
#include <tutti/nccl.hpp>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

namespace tutti::nccl {
namespace {

using namespace std::chrono_literals;

constexpr auto time_to_leave = 5000ms;  // for the library to free its communicators
constexpr auto time_to_fail = 5000ms;
// If a rank's library fails, the others wait this long within theirs.
constexpr std::chrono::milliseconds most_for_shrinking{60'000};

NcclOptions options_from(const Vendor& vendor, const std::any& pg_options) {
    if (!pg_options.has_value()) return {};
    if (const auto* options = std::any_cast<NcclOptions>(&pg_options)) return *options;
    throw InvalidArgument(vendor.backend + ": pg_options of type " + pg_options.type().name() +
                          ": expected tutti::NcclOptions");
}

// Several parts may be made at once; a rank is in one of them.
int color_of(const DistributedBackendOptions* part) {
    return part == nullptr ? -1 : std::ranges::min(part->global_ranks_in_group);
}

bool has_driver(Device::Type type) {
    try {
        return open_driver(type) != nullptr;
    } catch (const DistError&) {
        return false;
    }
}

// A communicator that is split off a larger group's.
struct Part {
    Device device;
    std::shared_ptr<Communicator> communicator;
    Agreement agreed;
};

class PlugIn final : public CustomBackend {
 public:
    PlugIn(std::shared_ptr<const Library> library, const DistributedBackendOptions& options, NcclOptions nccl_options,
           const std::optional<Part>& part = {})
        : context_(std::make_shared<Context>(std::move(library), options, std::move(nccl_options))),
          by_host_(std::make_shared<HostFallback>(context_)),
          messages_(std::make_unique<Messages>(context_)),
          collectives_(std::make_unique<Collectives>(context_, by_host_)),
          device_(serves(options.device) ? options.device : std::nullopt) {
        context_->watcher().set_probe([probe = messages_->probe(), title = context_->title()] {
            const auto error = probe();
            return error ? with_title(title, "told by another rank", error) : nullptr;
        });
        if (part) {
            context_->adopt(part->communicator);
            collectives_->connect(part->device, part->communicator, part->agreed);
        } else if (device_) {
            collectives_->connect(*device_);
        }
    }
    ~PlugIn() override { abort("its group has ended"); }

    void run(const BackendRequest& request, BackendCompletion completion) override {
        context_->throw_if_over();
        const bool is_message = request.call == BackendCall::send || request.call == BackendCall::receive;
        if (!is_message) return collectives_->run(request, std::move(completion));
        if (context_->is_captured(request))
            throw context_->cannot_be_captured(request, "the host takes part in it, which matches messages");
        messages_->run(request, std::move(completion));
    }
    // Messages are not grouped: matching comes first, so they begin one by one.
    void begin_group() override { collectives_->begin_group(); }
    void end_group() override { collectives_->end_group(); }
    bool takes_blocks() const override { return true; }

    bool can_split() const override { return device_.has_value() && context_->library()->abilities().split; }
    std::shared_ptr<CustomBackend> split(const DistributedBackendOptions* part, const std::any& pg_options) override;

    std::shared_ptr<CustomBackend> shrink(const DistributedBackendOptions& rest, const std::vector<int>& left_out,
                                          const std::any& pg_options) override;

    void leave() noexcept override;
    void abort(const std::string& reason) noexcept override;
    void drop(const std::string& reason) noexcept override {
        context_->keep_quiet();
        abort(reason);
    }

 private:
    CommunicatorOptions communicator_options_of(const DistributedBackendOptions& group,
                                                const NcclOptions& options) const;
    bool serves(const std::optional<Device>& device) const {
        if (!device) return false;
        const auto& served = context_->library()->vendor().devices;
        return std::ranges::find(served, device->type) != served.end();
    }

    const std::shared_ptr<Context> context_;
    const std::shared_ptr<HostFallback> by_host_;
    const std::unique_ptr<Messages> messages_;
    const std::unique_ptr<Collectives> collectives_;
    const std::optional<Device> device_;  // the device whose communicator the constructor makes
    std::mutex ending_;
    bool has_ended_ = false;
};

std::shared_ptr<CustomBackend> PlugIn::split(const DistributedBackendOptions* part, const std::any& pg_options) {
    if (!can_split()) return nullptr;
    context_->throw_if_over();
    const Channel& whole = collectives_->settled(*device_);
    const CurrentDevice current(*whole.place->driver, whole.place->device.index);
    const NcclOptions options =
        part == nullptr ? NcclOptions{} : options_from(context_->library()->vendor(), pg_options);
    const CommunicatorOptions of_part =
        part == nullptr ? context_->communicator_options(0, 0) : communicator_options_of(*part, options);
    std::shared_ptr<Communicator> communicator;
    try {
        communicator = Communicator::split(*whole.communicator, color_of(part), part == nullptr ? 0 : part->group_rank,
                                           of_part, context_->over_flag());
    } catch (...) {
        context_->fail(std::current_exception());
        throw;
    }
    if (part == nullptr) return nullptr;
    return std::make_shared<PlugIn>(context_->library(), *part, options,
                                    Part{*device_, std::move(communicator), whole.agreed});
}

CommunicatorOptions PlugIn::communicator_options_of(const DistributedBackendOptions& group,
                                                    const NcclOptions& options) const {
    return {.rank = group.group_rank,
            .size = group.group_size,
            .name = title_of(context_->library()->vendor().backend, group),
            .config = options.config,
            .timeout = group.timeout,
            .store = group.store};
}

// The ranks agree twice: whether all have a communicator that can shrink, and whether the shrink has succeeded. A
// library may need a rank that is gone; then they meet anew.
std::shared_ptr<CustomBackend> PlugIn::shrink(const DistributedBackendOptions& rest, const std::vector<int>& left_out,
                                              const std::any& pg_options) {
    abort("it goes on with fewer ranks");
    const std::string& backend = context_->library()->vendor().backend;
    const Channel* const whole =
        device_ && rest.device == device_ ? collectives_->connected_channel(*device_) : nullptr;
    const bool can = whole != nullptr && whole->communicator->is_kept() && !left_out.empty();
    if (!all_say_yes(rest, backend, "shrinking", can)) return nullptr;
    const NcclOptions options = options_from(context_->library()->vendor(), pg_options);
    std::shared_ptr<Communicator> communicator;
    try {
        const CurrentDevice current(*whole->place->driver, whole->place->device.index);
        communicator = Communicator::shrink(*whole->communicator, left_out, communicator_options_of(rest, options),
                                            std::min(rest.timeout, most_for_shrinking));
    } catch (const DistError&) {  // NOLINT(bugprone-empty-catch): all ranks are told
    }
    if (!all_say_yes(rest, backend, "what was shrunk", communicator != nullptr)) return nullptr;
    return std::make_shared<PlugIn>(context_->library(), rest, options,
                                    Part{*device_, std::move(communicator), whole->agreed});
}

void PlugIn::leave() noexcept {
    const auto until = Clock::now() + context_->timeout();
    collectives_->drain(until);
    by_host_->drain(until);
    context_->keep_quiet();
    if (!messages_->drain(until) || !context_->watcher().drain(until) || context_->is_over()) return;
    context_->leave(Clock::now() + time_to_leave);
}

void PlugIn::abort(const std::string& reason) noexcept {
    const std::lock_guard one(ending_);
    if (has_ended_) return;
    has_ended_ = true;
    context_->fail(std::make_exception_ptr(Aborted(context_->title() + ": " + reason)));
    const auto until = Clock::now() + time_to_fail;
    context_->wait_for_end(until);
    by_host_->drain(until);  // its thread releases buffers when their copies have ended
}

}  // namespace

std::shared_ptr<CustomBackend> make_backend(std::shared_ptr<const Library> library,
                                            const DistributedBackendOptions& options, const std::any& pg_options) {
    NcclOptions nccl_options = options_from(library->vendor(), pg_options);
    return std::make_shared<PlugIn>(std::move(library), options, std::move(nccl_options));
}

void register_plug_in(const Vendor& vendor) {
    std::vector<Device::Type> devices = vendor.devices;
    try {
        if (Library::open(vendor)->host_memory()) {
            std::erase_if(devices, [](Device::Type type) { return !has_driver(type); });
            devices.insert(devices.begin(), Device::Type::cpu);
        }
    } catch (const DistError&) {  // NOLINT(bugprone-empty-catch): the maker of a group gets the error
    }
    Backend::register_backend(
        vendor.backend,
        Backend::Extended([vendor](const DistributedBackendOptions& options, const std::any& pg_options) {
            std::shared_ptr<const Library> library;
            std::string trouble;
            try {
                library = Library::open(vendor);
            } catch (const DistError& error) {
                trouble = error.what();
            }
            roll_call(options, vendor.backend, trouble);
            return make_backend(library, options, pg_options);
        }),
        devices);
}

}  // namespace tutti::nccl
