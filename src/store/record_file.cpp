#include "store/record_file.hpp"

#include "core/assert.hpp"
#include "core/patience.hpp"
#include "core/private_file.hpp"

#include <tutti/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace tutti::store {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view magic = "TUTTIFS1";
constexpr std::size_t head_bytes = 12;
constexpr std::uint64_t max_record_bytes = std::uint64_t{8} << 30U;  // the largest values, several at once
constexpr std::size_t read_ahead_bytes = std::size_t{64} << 10U;

constexpr std::array<std::uint32_t, 256> make_crc_table() {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
        std::uint32_t value = i;
        for (int bit = 0; bit < 8; ++bit) value = (value >> 1U) ^ ((value & 1U) != 0 ? 0xedb88320U : 0U);
        table[i] = value;
    }
    return table;
}

/// CRC-32 as of IEEE 802.3.
std::uint32_t crc32(std::string_view bytes) {
    static constexpr auto table = make_crc_table();
    std::uint32_t value = ~0U;
    for (const char c : bytes) value = (value >> 8U) ^ table[(value ^ static_cast<unsigned char>(c)) & 255U];
    return ~value;
}

template <class Integer>
void put(std::string& to, Integer value) {
    for (std::size_t i = 0; i < sizeof value; ++i)
        to += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
}

template <class Integer>
Integer take(const char* from) {
    TUTTI_ASSERT(from != nullptr);
    Integer value = 0;
    for (std::size_t i = 0; i < sizeof value; ++i) {
        value = static_cast<Integer>(value | static_cast<Integer>(static_cast<unsigned char>(from[i])) << (8 * i));
    }
    return value;
}

}  // namespace

RecordFile::RecordFile(std::string path) : path_(std::move(path)) {
    reopen();
}

void RecordFile::reopen() {
    end_ = 0;
    fd_ = open_or_make();
    TUTTI_ASSERT(fd_);
    if (const auto bad = why_not_private(fd_.get(), path_, FileOwner::this_user)) refuse(bad->cause, bad->hint);
    struct statfs system {};
    on_nfs_ = ::fstatfs(fd_.get(), &system) == 0 && system.f_type == NFS_SUPER_MAGIC;
}

// Opening and making are two steps: a kernel that protects world-writable folders (fs.protected_regular) refuses
// O_CREAT there for another user's file, and would not let us say so. O_NONBLOCK: a FIFO in its place must not stop us.
// A file or link that somebody has put there is opened or refused, never overwritten.
UniqueFd RecordFile::open_or_make() const {
    constexpr int how = O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;
    for (;;) {
        UniqueFd fd(::open(path_.c_str(), how));
        if (!fd && errno == ENOENT) {
            fd.reset(::open(path_.c_str(), how | O_CREAT | O_EXCL, 0600));
            if (!fd && errno == EEXIST) continue;  // another process was quicker
            if (fd && ::fchmod(fd.get(), 0600) != 0) fail("cannot close to others", errno);  // under any umask
        }
        if (fd) return fd;
        const int error = errno;
        struct stat there {};
        if (error == ELOOP || (::lstat(path_.c_str(), &there) == 0 && S_ISLNK(there.st_mode)))
            refuse("it is a symbolic link, and none is followed", "give the path of the file itself");
        if (error == EACCES && there.st_mode != 0 && there.st_uid != ::geteuid())
            refuse(fmt::format("it belongs to user {}, not to this one ({})", there.st_uid, ::geteuid()),
                   "use a file of your own");
        fail("cannot open", error);
    }
}

void RecordFile::refuse(const std::string& cause, const std::string& hint) const {
    TUTTI_ASSERT(!cause.empty());
    throw DistStoreError(
        fmt::format("FileStore: {} cannot hold a job's secrets: {}{}{}", path_, cause, hint.empty() ? "" : "; ", hint),
        {.operation = "FileStore", .hint = hint}, ErrorCode::security);
}

void RecordFile::fail(std::string_view what, int error) const {
    std::string hint;
    if (error == ENOSPC || error == EDQUOT || error == EFBIG) hint = "make room, or use another path";
    if (error == ENOENT) hint = "its directory must exist";
    throw DistStoreError(fmt::format("FileStore: {} {}: {}{}{}", what, path_, std::system_category().message(error),
                                     hint.empty() ? "" : "; ", hint),
                         {.operation = "FileStore", .hint = hint});
}

bool RecordFile::try_lock(short type) const {
    TUTTI_ASSERT(fd_ && (type == F_RDLCK || type == F_WRLCK));
    struct flock range {};
    range.l_type = type;
    range.l_whence = SEEK_SET;
    if (::fcntl(fd_.get(), F_OFD_SETLK, &range) == 0) return true;
    if (errno == EAGAIN || errno == EACCES || errno == EINTR) return false;
    fail("cannot lock", errno);
}

RecordFile::Lock::Lock(RecordFile& file, Access access, const Deadline& deadline, const AbortFlag* abort)
    : file_(file) {
    // Tried again and again: a wait inside fcntl would know neither deadline nor abort.
    const Patience patience([&] { return fmt::format("the lock of {}, which another process holds", file.path_); });
    const short type = access == Access::write ? F_WRLCK : F_RDLCK;
    for (Clock::duration pause = 50us; !file_.try_lock(type); pause = std::min<Clock::duration>(pause * 2, 5ms)) {
        check_wait(deadline, abort, "FileStore lock");
        const timespec length{0, std::chrono::nanoseconds(pause).count()};
        ::nanosleep(&length, nullptr);
    }
}

RecordFile::Lock::~Lock() {
    struct flock range {};
    range.l_type = F_UNLCK;
    range.l_whence = SEEK_SET;
    ::fcntl(file_.fd_.get(), F_OFD_SETLK, &range);
}

std::uint64_t RecordFile::size() const {
    struct stat info {};
    if (::fstat(fd_.get(), &info) != 0) fail("cannot look at", errno);
    TUTTI_ASSERT(info.st_size >= 0);
    return static_cast<std::uint64_t>(info.st_size);
}

bool RecordFile::is_at_path() const {
    struct stat ours {};
    struct stat there {};
    return ::fstat(fd_.get(), &ours) == 0 && ::lstat(path_.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
           ours.st_dev == there.st_dev;
}

void RecordFile::remove() const {
    ::unlink(path_.c_str());
}

std::string RecordFile::read_at(std::uint64_t offset, std::size_t count) const {
    std::string bytes(count, '\0');
    std::size_t done = 0;
    while (done < count) {
        const ssize_t got = ::pread(fd_.get(), bytes.data() + done, count - done, static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail("cannot read", errno);
        if (got == 0) break;
        done += static_cast<std::size_t>(got);
        TUTTI_ASSERT(done <= count);
    }
    bytes.resize(done);
    return bytes;
}

void RecordFile::check_magic(std::uint64_t file_size) {
    TUTTI_ASSERT(end_ == 0 && file_size > 0);
    const std::string start = read_at(0, static_cast<std::size_t>(std::min<std::uint64_t>(file_size, magic.size())));
    if (!magic.starts_with(start)) {
        throw DistStoreError(fmt::format("FileStore: {} is not a store's file; give a path that does not exist yet, or "
                                         "an empty file",
                                         path_),
                             {.operation = "FileStore"});
    }
    if (start.size() == magic.size()) end_ = magic.size();
}

void RecordFile::read_new(const std::function<void(std::string_view)>& on_record) {
    const std::uint64_t file_size = size();
    if (file_size < end_) {
        throw DistStoreError(fmt::format("FileStore: {} was cut off by somebody while in use", path_),
                             {.operation = "FileStore"});
    }
    if (end_ == 0 && file_size > 0) check_magic(file_size);
    if (end_ == 0) return;
    TUTTI_ASSERT(end_ >= magic.size() && end_ <= file_size);
    std::string block;
    std::uint64_t block_start = end_;
    while (file_size - end_ >= head_bytes) {
        // `block` holds the file from block_start; fetch more when the next record is not all in it.
        const auto have = [&] { return block_start + block.size() - end_; };
        const auto fetch = [&](std::uint64_t needed) {
            if (have() >= needed) return;
            const std::uint64_t wanted = std::min(file_size - end_, std::max<std::uint64_t>(needed, read_ahead_bytes));
            block = read_at(end_, static_cast<std::size_t>(wanted));
            block_start = end_;
        };
        fetch(head_bytes);
        if (have() < head_bytes) return;
        const char* head = block.data() + (end_ - block_start);
        TUTTI_ASSERT(have() >= head_bytes);
        const auto sum = take<std::uint32_t>(head);
        const auto length = take<std::uint64_t>(head + 4);
        if (length > file_size - end_ - head_bytes) return;  // a writer was killed here
        if (length > max_record_bytes) fail_damaged();
        fetch(head_bytes + length);
        if (have() < head_bytes + length) return;
        const std::string_view whole(block.data() + (end_ - block_start) + 4, 8 + static_cast<std::size_t>(length));
        if (crc32(whole) != sum) {
            if (end_ + head_bytes + length == file_size) return;  // the last one: written in part
            fail_damaged();
        }
        TUTTI_ASSERT(whole.size() == 8 + length);
        on_record(whole.substr(8));
        end_ += head_bytes + length;
        TUTTI_ASSERT(end_ <= file_size);
    }
}

void RecordFile::fail_damaged() const {
    throw DistStoreError(fmt::format("FileStore: {} is damaged at byte {}; remove it", path_, end_),
                         {.operation = "FileStore"});
}

void RecordFile::write_at(std::uint64_t offset, std::string_view bytes) const {
    while (!bytes.empty()) {
        const ssize_t done = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) fail("cannot write to", errno);
        TUTTI_ASSERT(static_cast<std::size_t>(done) <= bytes.size());
        bytes.remove_prefix(static_cast<std::size_t>(done));
        offset += static_cast<std::uint64_t>(done);
    }
}

void RecordFile::append(std::string_view body) {
    const std::uint64_t start = end_;
    TUTTI_ASSERT(start == 0 || start >= magic.size());
    std::string record(start == 0 ? magic : std::string_view{});
    const std::size_t prefix = record.size();
    record.reserve(prefix + head_bytes + body.size());
    put(record, std::uint32_t{0});
    put(record, static_cast<std::uint64_t>(body.size()));
    record += body;
    std::string sum;
    put(sum, crc32(std::string_view(record).substr(prefix + 4)));
    record.replace(prefix, sum.size(), sum);
    TUTTI_ASSERT(record.size() == prefix + head_bytes + body.size());
    try {
        // The bytes that a killed writer left must not look like a part of this record.
        if (size() != start && ::ftruncate(fd_.get(), static_cast<off_t>(start)) != 0) fail("cannot write to", errno);
        write_at(start, record);
        // NFS tells only here that its disk is full.
        if (on_nfs_ && ::fsync(fd_.get()) != 0) fail("cannot write to", errno);
    } catch (...) {
        if (::ftruncate(fd_.get(), static_cast<off_t>(start)) != 0) {
            // All readers ignore the torn record all the same.
        }
        throw;
    }
    end_ = start + record.size();
}

}  // namespace tutti::store
