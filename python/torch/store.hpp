// Stores, both ways: a torch Store serves as one of tutti's, and tutti's stores serve as torch Stores.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <tutti/store.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::torch {

using Bytes = std::vector<std::uint8_t>;
inline Bytes bytes_of(std::string_view text) {
    return {text.begin(), text.end()};
}
inline std::string text_of(const Bytes& bytes) {
    return {bytes.begin(), bytes.end()};
}

/// A store that keeps its data in `store`; for one of ours, the store below it. Its waits poll, and abort() ends them.
/// Call and use it without the GIL: the store may be written in Python.
std::shared_ptr<StoreBackend> backend_of(const c10::intrusive_ptr<c10d::Store>& store);
/// A backend_of() uses the program's connection, as the program waits for the group that joins by it. From now on the
/// program uses it again, also in waits: the backend uses a copy (clone), if that is possible.
void leave_connection_to_program(StoreBackend& backend);

/// A torch Store that keeps its data in one of tutti's. Queues are keys "KEY/queue/INDEX" and two counters.
class TorchStore : public c10d::Store {
 public:
    explicit TorchStore(tutti::Store store);

    c10::intrusive_ptr<c10d::Store> clone() override;
    using c10d::Store::set;
    void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
    using c10d::Store::compareSet;
    std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                         const std::vector<std::uint8_t>& desired) override;
    std::vector<std::uint8_t> get(const std::string& key) override;
    std::int64_t add(const std::string& key, std::int64_t value) override;
    bool deleteKey(const std::string& key) override;
    bool check(const std::vector<std::string>& keys) override;
    std::int64_t getNumKeys() override;
    void wait(const std::vector<std::string>& keys) override;
    void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
    void setTimeout(const std::chrono::milliseconds& timeout) override;
    void append(const std::string& key, const std::vector<std::uint8_t>& value) override;
    std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>& keys) override;
    void multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<std::uint8_t>>& values) override;
    bool hasExtendedApi() const override;
    void queuePush(const std::string& key, const std::vector<std::uint8_t>& value) override;
    std::vector<std::uint8_t> queuePop(const std::string& key, bool block) override;
    std::int64_t queueLen(const std::string& key) override;
    const tutti::Store& store() const noexcept { return store_; }

 private:
    tutti::Store store_;
};

}  // namespace tutti::torch
