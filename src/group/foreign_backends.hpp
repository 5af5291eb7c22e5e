// ForeignBackends: the operations of a group that another backend runs: it describes each to the backend in plain form,
// waits for it, and completes it. A backend that is a transport runs none: the group itself does, over its bytes.
//
// Threads: any. Operations are handed over in the order of their issue.
#pragma once

#include "backend/registry.hpp"
#include "group/foreign_transport.hpp"
#include "operation/operation.hpp"

#include <tutti/backend.hpp>

#include <any>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tutti::detail {

class Group;
struct SubgroupSpec;

class ForeignBackends {
 public:
    /// Of a group, which must outlive it; makes the backends that `part` names. The group itself serves devices that it
    /// does not name or calls native.
    ForeignBackends(Group& group, const SubgroupSpec& spec);
    /// In a forked child the backends belong to the parent: drops them without destroying them.
    void forget() noexcept;
    /// The transport of others that carries the group's bytes; null: there is none.
    ForeignTransport* transport() const noexcept { return transport_.get(); }
    /// The group has ended, or its world has: also closes the transport. Not under the world's lock.
    void close();
    /// Aborts all backends; when it returns, they use no buffer any more.
    void abort(const std::string& reason) noexcept;

    /// By device, native ones included.
    const backend::Devices& names() const noexcept { return names_; }
    /// names() has one for host memory. Every call asks for that.
    bool serve_host() const noexcept { return serve_host_; }
    /// Options for groups made after this one's pattern.
    const std::any& options() const noexcept { return options_; }
    /// The device that this process is bound to.
    const std::optional<Device>& device() const noexcept { return device_; }
    bool takes_blocks(Device::Type device) const {
        const auto found = made_.find(device);
        return found != made_.end() && found->second->takes_blocks();
    }
    /// A backend of the group that makes those of its parts; null where there is none. Equal on all ranks.
    CustomBackend* splittable(const std::string& name) const;
    CustomBackend* of_name(const std::string& name) const;
    /// The other ranks make a part of which this rank is no member.
    void stay_out_of_split(const backend::Devices& names) const;

    /// Issues the operation if one of these backends is to run it. False: the group itself has to run it.
    bool submit(const std::shared_ptr<Operation>& operation);
    /// Operations that belong together, which a backend may begin as one.
    void submit_together(const std::vector<std::shared_ptr<Operation>>& operations, bool asynchronous);
    /// Waits for one; throws Timeout when the deadline has passed first.
    enum class Until { done, issued };
    void wait_for(Operation& operation, const Deadline& deadline, Until until = Until::done);
    void wait_until_issued(Operation& operation);
    /// A backend's news of one. Any thread.
    void note_enqueued(const std::shared_ptr<Operation>& operation, int source);
    void take_back(const std::shared_ptr<Operation>& operation, int source, const std::exception_ptr& error);
    /// The world has failed: ends the operations that they have under way; not under the world's lock.
    void end(const std::exception_ptr& failure);
    /// Waits for the operations that they have under way, and lets them go.
    void leave();

 private:
    CustomBackend* of(const Operation& operation) const;
    void make(const SubgroupSpec& spec);
    void hand_over(CustomBackend& backend, const std::shared_ptr<Operation>& operation);
    void wait_for_all();

    Group& group_;
    const backend::Devices names_;
    const bool serve_host_ = names_.contains(Device::Type::cpu);
    std::map<Device::Type, std::shared_ptr<CustomBackend>> made_;  // those that are not native, nor transports
    std::shared_ptr<ForeignTransport> transport_;
    std::any options_;
    std::optional<Device> device_;
    std::recursive_mutex order_;                         // of issue
    std::list<std::shared_ptr<Operation>> handed_over_;  // under the world's lock
};

}  // namespace tutti::detail
