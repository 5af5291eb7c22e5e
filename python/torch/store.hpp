// Stores, both ways: tutti's worlds meet in a torch Store, and tutti's stores serve as torch Stores.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <tutti/store.hpp>

#include <string>

namespace tutti::torch {

/// A backend whose first user is a rank that joins a world.
class JoiningStore : public StoreBackend {
 public:
    /// From now on the program uses its store again, also in waits.
    virtual void joined() = 0;
};

/// A tutti::Store that keeps its data in `store`; one of ours is used as it is. abort() ends all waits. Its backend is
/// a JoiningStore, which uses the program's connection until joined(), and then a copy (clone) where there can be one:
/// a wait of the program on it does not hold up ours. Until joined() keys are taken to be this rank's own: a
/// compare_set that expects nothing sets. Must be called, and used, without the GIL: the store may be written in
/// Python.
Store store_over(const c10::intrusive_ptr<c10d::Store>& store, Milliseconds timeout);

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
