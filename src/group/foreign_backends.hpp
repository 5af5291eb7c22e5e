// ForeignBackends: runs operations of a group on another backend: it describes each operation to the backend in plain
// form, waits for the backend, and completes the operation. For a backend that is a transport, the group itself runs
// the operations over it.
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
    /// For a group, which must outlive it; makes the backends that `spec` names. The group itself serves the devices
    /// that `spec` does not name or calls native.
    ForeignBackends(Group& group, const SubgroupSpec& spec);
    /// In a forked child the backends belong to the parent: drops them without destroying them.
    void forget() noexcept;
    /// The registered transport that carries the group's bytes; null: there is none.
    ForeignTransport* transport() const noexcept { return transport_.get(); }
    /// Closes the transport, once the group or its world has ended. Not under the world's lock.
    void close();
    /// The group's last handle has gone.
    void drop() noexcept;
    /// Aborts all backends; when it returns, they no longer access any buffer.
    void abort(const std::string& reason) noexcept;

    /// The backends by device, including native ones.
    const backend::Devices& names() const noexcept { return names_; }
    /// Whether names() has a backend for host memory; a member, since every call asks.
    bool serve_host() const noexcept { return serve_host_; }
    /// The options for groups that are made with this one as their model.
    const std::any& options() const noexcept { return options_; }
    /// The device that this process is bound to.
    const std::optional<Device>& device() const noexcept { return device_; }
    bool takes_blocks(Device::Type device) const {
        const auto found = made_.find(device);
        return found != made_.end() && found->second->takes_blocks();
    }
    /// A backend of the group that can make the backends of its subgroups; null: there is none. Equal on all ranks.
    CustomBackend* splittable(const std::string& name) const;
    CustomBackend* of_name(const std::string& name) const;
    /// The other ranks make a subgroup of which this rank is no member.
    void stay_out_of_split(const backend::Devices& names) const;

    /// Issues the operation if one of these backends runs it. False: the group itself has to run it.
    bool submit(const std::shared_ptr<Operation>& operation);
    /// Issues operations that belong together, which a backend may begin as one.
    void submit_together(const std::vector<std::shared_ptr<Operation>>& operations, bool asynchronous);
    /// Waits for an operation; throws Timeout if the deadline passes first.
    enum class Until { done, issued };
    void wait_for(Operation& operation, const Deadline& deadline, Until until = Until::done);
    void wait_until_issued(Operation& operation);
    /// A backend reports progress or the end of an operation. Any thread.
    void note_enqueued(const std::shared_ptr<Operation>& operation, int source);
    void take_back(const std::shared_ptr<Operation>& operation, int source, const std::exception_ptr& error);
    /// The world has failed: ends the operations that the backends run; not under the world's lock.
    void end(const std::exception_ptr& failure);
    /// Waits for the operations that the backends run; then the backends leave.
    void leave();

 private:
    CustomBackend* of(const Operation& operation) const;
    void make(const SubgroupSpec& spec);
    void hand_over(CustomBackend& backend, const std::shared_ptr<Operation>& operation);
    void wait_for_all();

    Group& group_;
    const backend::Devices names_;
    const bool serve_host_ = names_.contains(Device::Type::cpu);
    std::map<Device::Type, std::shared_ptr<CustomBackend>> made_;  // those that are neither native nor transports
    std::shared_ptr<ForeignTransport> transport_;
    std::any options_;
    std::optional<Device> device_;
    std::recursive_mutex order_;                         // of issue
    std::list<std::shared_ptr<Operation>> handed_over_;  // under the world's lock
};

}  // namespace tutti::detail
