#include "nccl/matching.hpp"

#include <limits>

namespace tutti::nccl {
namespace {

// Callers' tags are ints; tags of tutti's own messages lie beyond: they are few, and their callers far apart.
constexpr std::uint64_t largest_tag = std::numeric_limits<std::int32_t>::max();

}  // namespace

std::string Offer::words() const {
    const std::string device = to_string(Device{static_cast<Device::Type>(device_type), 0});
    return std::to_string(count) + " " + std::string(to_string(static_cast<DType>(dtype))) + " on " +
           device.substr(0, device.find(':'));
}

std::string name_of_message(const BackendRequest& r) {
    const bool sends = r.call == BackendCall::send;
    return std::string(sends ? "send" : "recv") + " of " + std::to_string(r.count) + " " +
           std::string(to_string(r.dtype)) +
           (r.root < 0 ? " from any rank" : (sends ? " to rank " : " from rank ") + std::to_string(r.root)) +
           " with tag " + std::to_string(r.tag);
}

Matching::Channel Matching::offers(std::uint64_t tag) const {
    if (tag <= largest_tag) return {host_group_, static_cast<int>(tag)};
    return {others_, static_cast<int>(first_other_tag + tag % (largest_tag - first_other_tag))};
}

std::exception_ptr Matching::failure() const {
    try {
        std::uint8_t sent = 0, got = 0;
        const int rank = others_.rank();
        const Channel own{others_, probe_tag};
        Work received = receive(got, rank, own, {});
        Work left = send(sent, rank, own, {});
        wait_all({received, left});
        return nullptr;
    } catch (...) {
        return std::current_exception();
    }
}

}  // namespace tutti::nccl
