// FileStore: a KeyMap that several processes keep equal by appending their changes to one file.
//
// Threads: any; one mutex per object, the file's lock between objects and processes. Waiting looks at the file again
// after 0.2 ms to 10 ms, because a file on NFS cannot push.
#include "core/assert.hpp"
#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/log.hpp"
#include "core/patience.hpp"
#include "core/socket.hpp"
#include "core/text.hpp"
#include "store/key_map.hpp"
#include "store/members.hpp"
#include "store/messages.hpp"
#include "store/record_file.hpp"
#include "store/wire.hpp"

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>

namespace tutti {
namespace {

using namespace std::chrono_literals;
using store::RecordFile;
using Access = RecordFile::Access;

/// The body of a record is one of these and its fields (as in a TCPStore's frames).
enum class Change : char {
    set = 's',      ///< key, value, key, value, …: together or not at all
    counter = 'c',  ///< key, decimal text
    append = 'a',   ///< key, value
    erase = 'e',    ///< key
    join = 'j',     ///< a user of a file with a fixed number of users: its identity
    will = 'w',     ///< identity, key, value: to be set when that process has ended, unless the key exists
    leave = 'l'     ///< identity
};

std::string encode(Change change, std::span<const std::string_view> fields) {
    TUTTI_ASSERT(!fields.empty());
    std::string body(1, static_cast<char>(change));
    for (const auto field : fields) {
        const auto size = store::encode_number(field.size());
        body.append(size.data(), size.size());
        body += field;
    }
    return body;
}

class FileBackend : public StoreBackend {
 public:
    FileBackend(const std::string& path, int world_size, Milliseconds timeout)
        : name_(fmt::format("FileStore({})", path)), file_(path), owner_(::getpid()), world_size_(world_size) {
        join(Deadline::after(timeout));
    }
    ~FileBackend() override { leave(); }

    void set(std::string_view key, std::string_view value, Milliseconds timeout) override {
        change("set", key, timeout, [&] { write(Change::set, {key, value}); });
    }
    std::string get(std::string_view key, Milliseconds timeout) override { return get_with_bell(key, timeout, -1); }
    bool asks_again() const override { return true; }
    std::string get_with_bell(std::string_view key, Milliseconds timeout, int bell) override {
        const std::string wanted(key);
        std::string value;
        wait_for(
            {&wanted, 1}, timeout, "get", [&] { value = *map_.find(key); }, bell);
        return value;
    }
    std::int64_t add(std::string_view key, std::int64_t amount, Milliseconds timeout) override {
        std::int64_t result = 0;
        change("add", key, timeout, [&] {
            result = map_.sum(key, amount);
            write(Change::counter, {key, std::to_string(result)});
        });
        return result;
    }
    void append(std::string_view key, std::string_view value, Milliseconds timeout) override {
        change("append", key, timeout, [&] { write(Change::append, {key, value}); });
    }
    bool check(std::span<const std::string> keys, Milliseconds timeout) override {
        bool result = false;
        access("check", keys, timeout, Access::read, [&] { result = all_exist(keys); });
        return result;
    }
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                            Milliseconds timeout) override {
        std::string result;
        change("compare_set", key, timeout, [&] {
            auto comparison = map_.compare(key, expected, desired);
            if (comparison.write) write(Change::set, {key, desired});
            result = std::move(comparison.result);
        });
        return result;
    }
    bool delete_key(std::string_view key, Milliseconds timeout) override {
        bool existed = false;
        change("delete_key", key, timeout, [&] {
            existed = map_.contains(key);
            if (existed) write(Change::erase, {key});
        });
        return existed;
    }
    std::int64_t num_keys(Milliseconds timeout) override {
        std::size_t count = 0;
        access("num_keys", {}, timeout, Access::read, [&] { count = map_.size(); });
        return static_cast<std::int64_t>(count) + 1;  // the record of the file's users
    }
    void wait(std::span<const std::string> keys, Milliseconds timeout) override {
        wait_for(keys, timeout, "wait", [] {});
    }
    std::vector<std::string> multi_get(std::span<const std::string> keys, Milliseconds timeout) override {
        std::vector<std::string> values;
        wait_for(keys, timeout, "multi_get", [&] {
            for (const auto& key : keys) values.push_back(*map_.find(key));
            TUTTI_ASSERT(values.size() == keys.size());
        });
        return values;
    }
    void multi_set(std::span<const std::string> keys, std::span<const std::string> values,
                   Milliseconds timeout) override {
        if (keys.empty()) return;
        TUTTI_ASSERT(keys.size() == values.size());
        std::vector<std::string_view> fields;
        for (std::size_t i = 0; i < keys.size(); ++i) {
            fields.push_back(keys[i]);
            fields.push_back(values[i]);
        }
        access("multi_set", keys, timeout, Access::write, [&] { write(Change::set, fields); });
    }
    bool set_will(std::string_view key, std::string_view value, Milliseconds timeout) override {
        change("set_will", key, timeout, [&] { write(Change::will, {identity_, key, value}); });
        return true;
    }
    std::string describe() const override { return name_; }

 private:
    bool all_exist(std::span<const std::string> keys) const {
        return std::ranges::all_of(keys, [this](const std::string& key) { return map_.contains(key); });
    }

    /// Runs `work` under the locks, with all changes of others.
    template <class Work>
    void locked(Access access, const Deadline& deadline, Work&& work) {
        const std::lock_guard guard(mutex_);
        if (::getpid() != owner_) {
            // A forked child shares its parent's lock until it has opened the file itself. It is no member.
            owner_ = ::getpid();
            map_.clear();
            members_ = {};
            wills_.clear();
            identity_ = store::Members::own_identity();
            me_.reset();
            file_.reopen();
        }
        const RecordFile::Lock lock(file_, access, deadline, abort_flag());
        file_.read_new([this](std::string_view body) { apply(body); });
        TUTTI_ASSERT(::getpid() == owner_);
        work();
    }

    template <class Work>
    void access(const char* operation, std::span<const std::string> keys, Milliseconds timeout, Access how,
                Work&& work) {
        const Instant start = Clock::now();
        try {
            locked(how, Deadline::after(timeout, start), work);
        } catch (const Timeout&) {
            store::throw_timeout(name_, operation, keys, start, timeout);
        }
    }

    template <class Work>
    void change(const char* operation, std::string_view key, Milliseconds timeout, Work&& work) {
        const std::string name(key);
        access(operation, {&name, 1}, timeout, Access::write, std::forward<Work>(work));
    }

    template <class Work>
    void wait_for(std::span<const std::string> keys, Milliseconds timeout, const char* operation, Work&& when_there,
                  int bell = -1) {
        const Instant start = Clock::now();
        TUTTI_ASSERT(operation != nullptr && bell >= -1);
        const Deadline deadline = Deadline::after(timeout, start);
        // The first look may take a moment, also with a timeout of 0.
        Deadline for_lock = Deadline::after(std::max<Clock::duration>(timeout, wait_slice), start);
        const Patience patience([&] { return store::what_is_awaited(name_, operation, keys); });
        Instant look_at_wills = start + wills_pause;
        try {
            for (Clock::duration pause = 200us;; pause = std::min<Clock::duration>(pause * 2, 10ms)) {
                bool there = false;
                locked(Access::read, for_lock, [&] {
                    there = all_exist(keys);
                    if (there) when_there();
                });
                if (there) return;
                check_wait(deadline, abort_flag(), operation);
                if (Clock::now() >= look_at_wills) {
                    do_wills(for_lock);
                    look_at_wills = Clock::now() + wills_pause;
                }
                if (net::sleep_unless_readable(bell, std::min<Clock::duration>(pause, deadline.remaining()))) bell = -1;
            }
        } catch (const Timeout&) {
            store::throw_timeout(name_, operation, keys, start, timeout);
        }
    }

    /// Does the wills of processes that have ended: every waiting process looks after them.
    void do_wills(const Deadline& deadline) {
        bool any = false;
        {
            const std::lock_guard guard(mutex_);
            std::erase_if(wills_, [this](const Will& will) { return map_.contains(will.key); });
            any = std::ranges::any_of(wills_,
                                      [](const Will& will) { return store::Members::is_dead(will.who).has_value(); });
        }
        if (any) locked(Access::write, deadline, [this] { do_wills_of(store::Members::is_dead); });
    }

    template <class Ended>
    void do_wills_of(Ended&& ended) {
        for (const Will& will : std::exchange(wills_, {})) {
            if (map_.contains(will.key)) continue;
            if (ended(will.who))
                write(Change::set, {will.key, will.value});
            else
                wills_.push_back(will);
        }
    }

    /// Appends a change and makes it here.
    void write(Change change, std::initializer_list<std::string_view> fields) {
        write(change, std::span(fields.begin(), fields.size()));
    }
    void write(Change change, std::span<const std::string_view> fields) {
        const std::string body = encode(change, fields);
        TUTTI_ASSERT(!body.empty() && body.front() == static_cast<char>(change));
        file_.append(body);
        apply(body);
    }

    void apply(std::string_view body) {
        const auto fields = body.empty() ? std::nullopt : store::split_fields(body.substr(1));
        const auto has = [&](std::size_t count) { return fields && fields->size() == count; };
        const auto kind = body.empty() ? Change{} : static_cast<Change>(body.front());
        if (kind == Change::set && fields && fields->size() % 2 == 0) {
            for (std::size_t i = 0; i < fields->size(); i += 2) map_.set((*fields)[i], (*fields)[i + 1]);
        } else if (kind == Change::counter && has(2)) {
            map_.set_counter((*fields)[0], number((*fields)[1]));
        } else if (kind == Change::append && has(2)) {
            map_.append((*fields)[0], (*fields)[1]);
        } else if (kind == Change::erase && has(1)) {
            map_.erase((*fields)[0]);
        } else if (kind == Change::join && has(1)) {
            members_.join((*fields)[0]);
        } else if (kind == Change::leave && has(1)) {
            members_.leave((*fields)[0]);
        } else if (kind == Change::will && has(3)) {
            wills_.push_back({std::string((*fields)[0]), std::string((*fields)[1]), std::string((*fields)[2])});
        } else {
            throw DistStoreError(fmt::format("{}: a record that this version of tutti does not know", name_));
        }
    }

    std::int64_t number(std::string_view text) const {
        if (const auto value = number_in<std::int64_t>(text)) return *value;
        throw DistStoreError(
            fmt::format("{}: a record says that a counter is {}: expected an integer of 64 bits; "
                        "remove the file",
                        name_, store::show_key(text)));
    }

    /// The last user may have removed the file between our opening and locking it: then we are in a file that no other
    /// process will ever see, and begin again.
    void join(const Deadline& deadline) {
        bool joined = false;
        while (!joined) {
            try {
                locked(Access::write, deadline, [&] {
                    if (!file_.is_at_path()) return;
                    joined = true;
                    if (world_size_ > 0) enter();
                });
            } catch (const Timeout&) {
                throw DistStoreError(fmt::format("{}: the file stayed locked by somebody else", name_),
                                     {.operation = "FileStore"}, ErrorCode::timeout);
            }
            if (joined) return;
            map_.clear();
            members_ = {};
            wills_.clear();
            file_.reopen();
        }
    }

    void enter() {
        TUTTI_ASSERT(world_size_ > 0 && !me_);
        const auto stale = [this](const std::string& why) {
            throw DistStoreError(
                fmt::format("{}: the file belongs to an earlier job ({}); remove it, or choose another path", name_,
                            why),
                {.operation = "FileStore", .hint = "every job needs a file that does not exist yet, or is empty"});
        };
        if (const auto dead = members_.dead_member()) stale(fmt::format("its user {} is dead", *dead));
        if (members_.present() >= static_cast<std::size_t>(world_size_)) {
            stale(fmt::format("it has {} users already and world_size is {}", members_.present(), world_size_));
        }
        me_ = identity_;
        write(Change::join, {*me_});
        TUTTI_ASSERT(members_.present() >= 1 && members_.present() <= static_cast<std::size_t>(world_size_));
    }

    /// Best effort: a file that stays behind is noticed by its next user.
    void leave() noexcept {
        if (::getpid() != owner_ || (!me_ && !has_wills())) return;
        try {
            locked(Access::write, Deadline::after(1s), [this] {
                do_wills_of([this](const std::string& who) { return who == identity_; });
                if (!me_) return;
                write(Change::leave, {*me_});
                TUTTI_ASSERT(members_.ever() >= members_.present());
                const bool all_were_here = members_.ever() >= static_cast<std::size_t>(world_size_);
                if (all_were_here && members_.present() == 0 && file_.is_at_path()) file_.remove();
            });
        } catch (const std::exception& error) {
            TUTTI_DEBUG("{}: {}", name_, error.what());
        }
    }

    bool has_wills() const {
        return std::ranges::any_of(wills_, [this](const Will& will) { return will.who == identity_; });
    }

    struct Will {
        std::string who, key, value;
    };
    static constexpr auto wills_pause = 200ms;

    std::string name_;
    std::mutex mutex_;
    RecordFile file_;
    pid_t owner_;
    std::string identity_ = store::Members::own_identity();
    std::vector<Will> wills_;  // whose keys may not exist yet
    int world_size_;
    std::optional<std::string> me_;  // as a member of a file with a fixed number of users
    store::Members members_;
    store::KeyMap map_;
};

std::string checked_path(const std::string& path, int world_size) {
    if (path.empty()) throw InvalidArgument("FileStore: the path is empty");
    if (world_size == 0) throw InvalidArgument("FileStore: world_size 0: expected at least 1, or a negative number");
    return path;
}

}  // namespace

FileStore::FileStore(const std::string& path, int world_size, Milliseconds timeout)
    : Store(std::make_shared<FileBackend>(checked_path(path, world_size), world_size, timeout), timeout), path_(path) {}

}  // namespace tutti
