// Stores, both ways: tutti's worlds meet in a torch Store, and tutti's stores serve as torch Stores.
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

/// The interface to a joining rank that waits in a store.
class JoiningWatch {
 public:
    virtual ~JoiningWatch() = default;
    /// The wait calls it again and again. An exception ends the wait, unless the awaited keys are there by now.
    virtual void look() = 0;
    /// The wait's time is over. True: this rank is in nevertheless, and the awaited keys are there.
    virtual bool give_up() = 0;
    /// The rest of this rank's time.
    virtual Milliseconds left() const = 0;
};

/// A backend whose first user is a rank that joins a world.
class JoiningStore : public StoreBackend {
 public:
    /// From now on every wait calls `watch` (null: none).
    virtual void watch(JoiningWatch* watch) = 0;
    /// From now on the program uses its store again, also in waits.
    virtual void joined() = 0;
    /// The same keys, for requests beside a wait. Each takes no longer than its timeout, whatever the store does.
    virtual std::shared_ptr<StoreBackend> beside() = 0;
};

/// A store that keeps its data in `store`; for one of ours, in the store below it. abort() ends all waits. It uses the
/// program's connection until joined(), and then, or beside waits, a copy (clone) if that is possible: a wait of the
/// program does not hold up ours. Call and use it without the GIL: the store may be written in Python.
std::shared_ptr<JoiningStore> store_to_join_in(const c10::intrusive_ptr<c10d::Store>& store);

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
