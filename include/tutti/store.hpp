// Key/value stores: how the processes of a job find each other and share small data.
//
// A Store is a handle: copies name the same store. All operations are thread-safe. Keys and values are
// arbitrary bytes. Waiting operations (get, multi_get, wait) block until the keys exist and throw DistStoreError with
// code timeout after the store's timeout (default 300 s) or the given one.
// A client whose server dies gets DistStoreError naming host and port within a second. A value may have up to
// 1 GiB, a key up to 1 MiB. Another thread ends all waits of a store with abort().
// Follows torch.distributed.Store.
#pragma once

#include <tutti/export.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

class AbortFlag;
using Milliseconds = std::chrono::milliseconds;
inline constexpr Milliseconds default_store_timeout = std::chrono::seconds(300);

/// The operations that a store must have, each as the function of Store with that name. Derive from it to bring your
/// own (wrap it in a Store). Every timeout is an upper bound for the whole call; implementations must be thread-safe.
class TUTTI_API StoreBackend {
 public:
    StoreBackend();
    virtual ~StoreBackend();
    StoreBackend(const StoreBackend&) = delete;
    StoreBackend& operator=(const StoreBackend&) = delete;

    virtual void set(std::string_view key, std::string_view value, Milliseconds timeout) = 0;
    virtual std::string get(std::string_view key, Milliseconds timeout) = 0;
    virtual std::int64_t add(std::string_view key, std::int64_t amount, Milliseconds timeout) = 0;
    virtual void append(std::string_view key, std::string_view value, Milliseconds timeout) = 0;
    virtual bool check(std::span<const std::string> keys, Milliseconds timeout) = 0;
    virtual std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                    Milliseconds timeout) = 0;
    virtual bool delete_key(std::string_view key, Milliseconds timeout) = 0;
    virtual std::int64_t num_keys(Milliseconds timeout) = 0;
    virtual void wait(std::span<const std::string> keys, Milliseconds timeout) = 0;
    /// By default, multi_get and multi_set call get and set for each key.
    virtual std::vector<std::string> multi_get(std::span<const std::string> keys, Milliseconds timeout);
    virtual void multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                           Milliseconds timeout);
    /// Whether this store's waits poll, because the store does not notify them of other processes' writes.
    virtual bool asks_again() const { return false; }
    /// As get. A store that polls may poll less often, but polls at once when the descriptor `bell` (-1: none) becomes
    /// readable; it does not read from `bell`. Default: calls get, enough for a store that notifies.
    virtual std::string get_with_bell(std::string_view key, Milliseconds timeout, int bell);
    /// A last will: when this process ends, or is cut off from the store, before `key` exists, the store sets `key` to
    /// `value` on the process's behalf. False (the default): this store has no last wills, and nothing happens.
    virtual bool set_will(std::string_view key, std::string_view value, Milliseconds timeout);
    /// For messages: "TCPStore(10.0.0.1:29500)".
    virtual std::string describe() const = 0;
    /// Numeric address of this process's end of the connection to the store, by which the job's other processes can
    /// reach this host. Empty: the store uses no network. "0.0.0.0": the store's server is on this host and serves
    /// other hosts too, so they can reach this host, but by which address is unknown.
    virtual std::string local_host() const { return {}; }
    /// Every wait, now and later, ends within 100 ms with Aborted and this reason.
    virtual void abort(const std::string& reason);
    /// The shortest round trip that the connection to the store's server has seen so far. Zero (the default): there is
    /// no such connection, or nobody knows.
    virtual std::chrono::microseconds round_trip() const { return {}; }

 protected:
    /// For the waits of an implementation; raised by abort().
    const AbortFlag* abort_flag() const noexcept { return abort_.get(); }

 private:
    std::unique_ptr<AbortFlag> abort_;
};

/// A handle to a store.
class TUTTI_API Store {
 public:
    Store() = default;  ///< no store
    explicit Store(std::shared_ptr<StoreBackend> backend, Milliseconds timeout = default_store_timeout);
    virtual ~Store();
    Store(const Store&) = default;
    Store& operator=(const Store&) = default;

    explicit operator bool() const noexcept { return backend_ != nullptr; }

    /// Inserts or overwrites; makes a counter a plain value. A TCPStore whose server answers sends a small value and
    /// returns without waiting for the answer. Later operations of this store take effect after it, and a process that
    /// gets or waits for the key finds it. Once a later operation of this store has returned a result, the key exists.
    void set(std::string_view key, std::string_view value);
    /// Waits for the key and returns its value; a counter's value is its decimal text.
    std::string get(std::string_view key);
    std::string get(std::string_view key, Milliseconds timeout);
    /// Adds to a counter (created as 0) and returns its new value. DistStoreError naming the key if the
    /// value was written by set, append or compare_set, or if the sum would overflow.
    std::int64_t add(std::string_view key, std::int64_t amount);
    /// Appends to the value; creates the key if absent.
    void append(std::string_view key, std::string_view value);
    /// Whether all keys exist; does not wait for them.
    bool check(const std::vector<std::string>& keys);
    /// Atomic compare and set. If the key holds `expected`, or `expected` is empty and there is no key: sets it to
    /// `desired` and returns that. If the key holds another value: returns this value, unchanged. If `expected` is not
    /// empty and there is no key: returns `expected`, and creates no key.
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired);
    /// True if the key existed.
    bool delete_key(std::string_view key);
    /// The number of keys. TCPStore, FileStore: one more than the user's keys (a coordination key); HashStore: exact.
    /// PrefixStore: the underlying store's number.
    std::int64_t num_keys();
    /// Waits for all keys and returns their values, in order.
    std::vector<std::string> multi_get(const std::vector<std::string>& keys);
    /// As set, of each key; throws InvalidArgument if the lists' lengths differ.
    void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values);
    /// Blocks until all keys exist.
    void wait(const std::vector<std::string>& keys);
    void wait(const std::vector<std::string>& keys, Milliseconds timeout);
    /// Whether append, multi_get, multi_set and compare_set are single operations of the store.
    bool has_extended_api() const noexcept;
    void set_timeout(Milliseconds timeout);
    Milliseconds timeout() const;
    /// Any thread: every wait on this store, now and later, ends within 100 ms with Aborted.
    void abort(const std::string& reason);
    std::string describe() const;

    const std::shared_ptr<StoreBackend>& backend() const noexcept { return backend_; }

 protected:
    struct State;
    StoreBackend& checked() const;
    std::shared_ptr<StoreBackend> backend_;
    std::shared_ptr<State> state_;  // the default timeout, shared by copies
};

/// A store in the memory of one process, for its threads.
class TUTTI_API HashStore : public Store {
 public:
    explicit HashStore(Milliseconds timeout = default_store_timeout);
};

/// A store in a file that all processes can lock with fcntl (local or NFS). Survives a writer's death: the store
/// ignores a torn last record, and the next writer cuts it off. delete_key is supported (a deletion record).
/// `world_size` (number of users, negative: not fixed): the last user removes the file; a file that an earlier job
/// left behind (its users are dead, or there would be more than world_size) is a DistStoreError. Jobs that meet there
/// exchange their secrets through the file: a file that another user owns or may use, or a symbolic link, is a
/// DistStoreError (code security) that names the remedy.
class TUTTI_API FileStore : public Store {
 public:
    explicit FileStore(const std::string& path, int world_size = -1, Milliseconds timeout = default_store_timeout);
    const std::string& path() const noexcept { return path_; }

 private:
    std::string path_;
};

struct TCPStoreOptions {
    /// Where clients connect. The server listens there; with a secret (below) on every address of its host.
    std::string host = "127.0.0.1";
    std::uint16_t port = 0;           ///< 0 on the master: any free port, see TCPStore::port()
    std::optional<int> world_size{};  ///< number of users (clients + 1), if fixed
    bool is_master = false;           ///< this process runs the server
    Milliseconds timeout = default_store_timeout;
    bool wait_for_workers = true;         ///< with a world_size: the master's constructor waits for all
    bool multi_tenant = false;            ///< stores of this process on one host and port share one server
    int master_listen_fd = -1;            ///< a bound (or listening) socket; the store takes ownership
    bool use_libuv = true;                ///< accepted for compatibility: the server always runs on libuv
    std::optional<std::string> secret{};  ///< the job's secret; default: see TUTTI_JOB_SECRET
    /// On the master: another process may be the store's standby, which keeps all of its contents, and serves the store
    /// if the master's process or host is lost. Clients then go on with the standby, within 2 s and without an error.
    /// Each change waits until the standby has it.
    bool with_standby = false;
    /// On one other process: it is the standby of the server at host and port, which was made with_standby. The
    /// constructor returns when it has the whole contents.
    bool is_standby = false;
};

/// A store in one server process that all processes reach over TCP. On every connection both ends prove that they know
/// the job's secret.
class TUTTI_API TCPStore : public Store {
 public:
    explicit TCPStore(TCPStoreOptions options);
    const std::string& host() const noexcept { return host_; }
    std::uint16_t port() const noexcept { return port_; }
    bool libuv_backend() const noexcept { return true; }
    /// In the standby's process: where it listens. Processes that come after a takeover give its address as theirs of
    /// the store. 0 elsewhere.
    std::uint16_t standby_port() const noexcept { return standby_port_; }

 private:
    std::string host_;
    std::uint16_t port_ = 0, standby_port_ = 0;
};

/// Puts `prefix` + "/" in front of every key.
class TUTTI_API PrefixStore : public Store {
 public:
    PrefixStore(const std::string& prefix, const Store& store);
    const Store& underlying_store() const noexcept { return underlying_; }

 private:
    Store underlying_;
};

}  // namespace tutti
