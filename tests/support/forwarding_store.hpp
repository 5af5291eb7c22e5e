// A store that hands every call on to another: tests derive from it and change what they are about.
#pragma once

#include <tutti/store.hpp>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::test {

class ForwardingStore : public StoreBackend {
 public:
    explicit ForwardingStore(std::shared_ptr<StoreBackend> inner = HashStore().backend()) : inner_(std::move(inner)) {}

    void set(std::string_view key, std::string_view value, Milliseconds timeout) override {
        inner_->set(key, value, timeout);
    }
    std::string get(std::string_view key, Milliseconds timeout) override { return inner_->get(key, timeout); }
    std::int64_t add(std::string_view key, std::int64_t amount, Milliseconds timeout) override {
        return inner_->add(key, amount, timeout);
    }
    void append(std::string_view key, std::string_view value, Milliseconds timeout) override {
        inner_->append(key, value, timeout);
    }
    bool check(std::span<const std::string> keys, Milliseconds timeout) override {
        return inner_->check(keys, timeout);
    }
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                            Milliseconds timeout) override {
        return inner_->compare_set(key, expected, desired, timeout);
    }
    bool delete_key(std::string_view key, Milliseconds timeout) override { return inner_->delete_key(key, timeout); }
    std::int64_t num_keys(Milliseconds timeout) override { return inner_->num_keys(timeout); }
    void wait(std::span<const std::string> keys, Milliseconds timeout) override { inner_->wait(keys, timeout); }
    std::string describe() const override { return "ForwardingStore"; }

 private:
    std::shared_ptr<StoreBackend> inner_;
};

}  // namespace tutti::test
