// FileStore: keys and values as a log of records in one file.
//
//   record   u32 checksum | u32 kind | u64 key bytes | u64 value bytes | key | value
// A record counts only if it is whole and its checksum is right; what a killed writer left is cut off by the next
// writer under the lock. Locks are open-file-description locks of fcntl, so that two stores of one process exclude each
// other too. No memory mapping: works over NFS. Waiting looks again every few milliseconds, as a file cannot push.
#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/unique_fd.hpp"
#include "store/table.hpp"
#include "store/wait_error.hpp"

#include <tutti/store.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>

namespace tutti {
namespace {

enum class RecordKind : std::uint32_t { value = 1, counter = 2, erased = 3 };

struct Head {
    std::uint32_t checksum = 0;
    RecordKind kind = RecordKind::value;
    std::uint64_t key_bytes = 0;
    std::uint64_t value_bytes = 0;
};
static_assert(sizeof(Head) == 24);

// FNV-1a over everything after the checksum.
std::uint32_t checksum_of(std::string_view record) {
    std::uint32_t hash = 2166136261U;
    for (const char c : record.substr(sizeof(std::uint32_t))) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
    return hash;
}

std::string encode(RecordKind kind, std::string_view key, std::string_view value) {
    Head head{0, kind, key.size(), value.size()};
    std::string record(reinterpret_cast<const char*>(&head), sizeof head);
    record.append(key).append(value);
    head.checksum = checksum_of(record);
    std::memcpy(record.data(), &head.checksum, sizeof head.checksum);
    return record;
}

class FileBackend final : public StoreBackend {
 public:
    FileBackend(std::string path, int world_size) : path_(std::move(path)), world_size_(world_size) {
        fd_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
        if (!fd_) fail("cannot open");
        const Lock lock(*this, F_WRLCK);
        catch_up();
        write(RecordKind::counter, store::coordination_key,
              std::to_string(table_.counter(store::coordination_key) + 1));
    }

    ~FileBackend() override {
        // Best effort, as the last user of a fixed number removes the file.
        try {
            const Lock lock(*this, F_WRLCK);
            catch_up();
            const std::int64_t left = table_.counter(left_key) + 1;
            if (world_size_ > 0 && left >= table_.counter(store::coordination_key) && left >= world_size_) {
                ::unlink(path_.c_str());
            } else if (world_size_ > 0) {
                write(RecordKind::counter, left_key, std::to_string(left));
            }
        } catch (const std::exception&) {
        }
    }

    void set(std::string_view key, std::string_view value, Milliseconds) override {
        change([&] { write(RecordKind::value, key, value); });
    }
    std::string get(std::string_view key, Milliseconds timeout) override {
        const std::string name(key);
        wait_for({&name, 1}, timeout, "get");
        const std::lock_guard guard(mutex_);
        return *table_.find(key);
    }
    std::int64_t add(std::string_view key, std::int64_t amount, Milliseconds) override {
        std::int64_t sum = 0;
        change([&] {
            sum = table_.add(key, amount);  // throws if it is no counter
            write(RecordKind::counter, key, std::to_string(sum));
        });
        return sum;
    }
    void append(std::string_view key, std::string_view value, Milliseconds) override {
        change([&] {
            const std::string* old = table_.find(key);
            write(RecordKind::value, key, (old != nullptr ? *old : std::string()) + std::string(value));
        });
    }
    bool check(std::span<const std::string> keys, Milliseconds) override {
        look();
        const std::lock_guard guard(mutex_);
        return all_there(keys);
    }
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                            Milliseconds) override {
        std::string result;
        change([&] {
            const std::string* old = table_.find(key);
            const bool writes = old != nullptr ? !expected.empty() && *old == expected : expected.empty();
            result = writes ? std::string(desired) : old != nullptr ? *old : std::string(expected);
            if (writes) write(RecordKind::value, key, desired);
        });
        return result;
    }
    bool delete_key(std::string_view key, Milliseconds) override {
        bool existed = false;
        change([&] {
            existed = table_.contains(key);
            if (existed) write(RecordKind::erased, key, "");
        });
        return existed;
    }
    std::int64_t num_keys(Milliseconds) override {
        look();
        const std::lock_guard guard(mutex_);
        return table_.size() - (table_.contains(left_key) ? 1 : 0);
    }
    void wait(std::span<const std::string> keys, Milliseconds timeout) override { wait_for(keys, timeout, "wait"); }
    std::string describe() const override { return fmt::format("FileStore({})", path_); }

 private:
    static constexpr std::string_view left_key = "left/";

    // Excludes other threads, and other stores on the file.
    class Lock {
     public:
        Lock(FileBackend& store, short type) : store_(store), guard_(store.mutex_) {
            struct flock range {};
            range.l_type = type;
            range.l_whence = SEEK_SET;
            while (::fcntl(store_.fd_.get(), F_OFD_SETLKW, &range) != 0) {
                if (errno != EINTR) store_.fail("cannot lock");
                if (interrupt_requested()) check_wait(Deadline::never(), nullptr, "FileStore");
            }
        }
        ~Lock() {
            struct flock range {};
            range.l_type = F_UNLCK;
            range.l_whence = SEEK_SET;
            ::fcntl(store_.fd_.get(), F_OFD_SETLK, &range);
        }
        Lock(const Lock&) = delete;
        Lock& operator=(const Lock&) = delete;

     private:
        FileBackend& store_;
        std::lock_guard<std::mutex> guard_;
    };

    [[noreturn]] void fail(const char* what) const {
        throw DistStoreError(fmt::format("FileStore: {} {}: {}", what, path_, std::strerror(errno)));
    }

    template <class F>
    void change(F f) {
        const Lock lock(*this, F_WRLCK);
        catch_up();
        f();
    }
    void look() {
        const Lock lock(*this, F_RDLCK);
        catch_up();
    }
    bool all_there(std::span<const std::string> keys) const {
        return std::ranges::all_of(keys, [&](const std::string& key) { return table_.contains(key); });
    }

    // Reads the records that were added since the last look. Stops at a torn one.
    void catch_up() {
        struct stat status {};
        if (::fstat(fd_.get(), &status) != 0) fail("cannot look at");
        const auto size = static_cast<std::uint64_t>(status.st_size);
        if (size < end_) {  // somebody emptied it: begin again
            table_.clear();
            end_ = 0;
        }
        if (size == end_) return;
        std::string bytes(size - end_, '\0');
        std::size_t have = 0;
        while (have < bytes.size()) {
            const ssize_t count =
                ::pread(fd_.get(), bytes.data() + have, bytes.size() - have, static_cast<off_t>(end_ + have));
            if (count < 0 && errno == EINTR) continue;
            if (count <= 0) break;
            have += static_cast<std::size_t>(count);
        }
        std::string_view rest(bytes.data(), have);
        while (rest.size() >= sizeof(Head)) {
            Head head;
            std::memcpy(&head, rest.data(), sizeof head);
            const std::uint64_t body = rest.size() - sizeof head;
            if (head.key_bytes > body || head.value_bytes > body - head.key_bytes) break;
            const std::string_view record = rest.substr(0, sizeof head + head.key_bytes + head.value_bytes);
            if (checksum_of(record) != head.checksum) break;
            apply(head.kind, record.substr(sizeof head, head.key_bytes), record.substr(sizeof head + head.key_bytes));
            rest.remove_prefix(record.size());
            end_ += record.size();
        }
    }

    void apply(RecordKind kind, std::string_view key, std::string_view value) {
        if (kind == RecordKind::erased)
            table_.erase(key);
        else if (kind == RecordKind::counter)
            table_.set_counter(key, std::stoll(std::string(value)));
        else
            table_.set(key, value);
    }

    void write(RecordKind kind, std::string_view key, std::string_view value) {
        const std::string record = encode(kind, key, value);
        std::size_t done = 0;
        while (done < record.size()) {
            const ssize_t count =
                ::pwrite(fd_.get(), record.data() + done, record.size() - done, static_cast<off_t>(end_ + done));
            if (count < 0 && errno == EINTR) continue;
            if (count <= 0) {
                const int error = errno;
                (void)!::ftruncate(fd_.get(), static_cast<off_t>(end_));  // the file is as it was before
                errno = error;
                fail("cannot write");
            }
            done += static_cast<std::size_t>(count);
        }
        end_ += record.size();
        (void)!::ftruncate(fd_.get(), static_cast<off_t>(end_));  // cuts off what a killed writer left
        apply(kind, key, value);
    }

    void wait_for(std::span<const std::string> keys, Milliseconds timeout, const char* operation) {
        const Deadline deadline = Deadline::after(timeout);
        for (std::chrono::microseconds pause{200};;
             pause = std::min<std::chrono::microseconds>(pause * 2, std::chrono::milliseconds(10))) {
            if (check(keys, timeout)) return;
            if (deadline.expired()) throw store::timeout_error(operation, keys, describe(), timeout);
            if (interrupt_requested()) check_wait(deadline, nullptr, operation);
            std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline.remaining()));
        }
    }

    std::string path_;
    int world_size_;
    UniqueFd fd_;
    std::mutex mutex_;
    store::Table table_;
    std::uint64_t end_ = 0;
};

}  // namespace

FileStore::FileStore(const std::string& path, int world_size, Milliseconds timeout)
    : Store(std::make_shared<FileBackend>(path, world_size), timeout), path_(path) {}

}  // namespace tutti
