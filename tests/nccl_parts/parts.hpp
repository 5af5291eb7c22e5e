// The parts of the plug-in by themselves: a backend "parts" of HostFallback for every collective and Messages for every
// message, on the fake device or on host memory; and ranks that are threads.
#pragma once

#include "nccl_parts/fake_driver.hpp"
#include "nccl_parts/fake_library.hpp"

#include <tutti/tutti.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace tutti::test {

using namespace std::chrono_literals;

enum class Where { device, host };

struct PartsWorld {
    Where where = Where::device;
    std::chrono::milliseconds timeout = 30s;
    Determinism determinism = Determinism::fast;
};

/// One rank, and where its tensors are.
struct Rank {
    ProcessGroup group;
    Device device{};
    int rank() const { return group.rank(); }
    int size() const { return group.size(); }
    template <class T>
    TensorView on(std::vector<T>& values) const {
        return {values.data(), Extents::of(static_cast<std::int64_t>(values.size())), dtype_of<T>, {}, device};
    }
    /// A stream of its device, until the rank ends; empty on the host.
    Stream stream() const;
    /// Until what it holds has been carried out.
    void wait_for(Stream stream) const;
};

/// The body on ranks that are threads. EXPECTs count on each; an exception that escapes is a failure. When it returns,
/// all groups are gone.
void on_ranks(int size, const std::function<void(const Rank&)>& body, const PartsWorld& world = {});

/// Host memory that is kept for later.
std::size_t idle_pinned_bytes();

inline bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace tutti::test
