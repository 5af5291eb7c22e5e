// RecordFile: a file to which several processes append records under a lock.
//
//   file     "TUTTIFS1", record, record, …
//   record   u32 CRC-32 of the rest | u64 length of the body | body          (little-endian)
//
// A record counts once it is complete. Readers ignore an incomplete record that a killed writer left at the end, and
// the next writer cuts it off. Locks are fcntl's open-file-description locks, which also exclude two objects of one
// process, and which NFS forwards to its server; the file is read by offset and never mapped.
//
// Threads: none of its own; the owner serialises calls.
#pragma once

#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/unique_fd.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tutti::store {

class RecordFile {
 public:
    /// Opens or creates the file. Throws DistStoreError on failure; with code security if the file is a link, or not
    /// private to this user (the jobs that meet there exchange their secrets in it).
    explicit RecordFile(std::string path);

    enum class Access { read, write };
    /// Holds the lock while it lives. The constructor throws Timeout and Aborted like every wait.
    class Lock {
     public:
        Lock(RecordFile& file, Access access, const Deadline& deadline, const AbortFlag* abort);
        ~Lock();
        Lock(const Lock&) = delete;
        Lock& operator=(const Lock&) = delete;

     private:
        RecordFile& file_;
    };

    /// Call under a lock: calls on_record for each record that was added since the last call.
    void read_new(const std::function<void(std::string_view body)>& on_record);
    /// Call under a write lock, after read_new(): appends one record. If the disk is full the file stays as it was, and
    /// DistStoreError reports it.
    void append(std::string_view body);
    /// Call under a lock: whether the path still names this file.
    bool is_at_path() const;
    void remove() const;
    /// Opens the path anew and forgets the records read so far: a forked child needs its own lock.
    void reopen();
    const std::string& path() const noexcept { return path_; }

 private:
    bool try_lock(short type) const;
    std::uint64_t size() const;
    std::string read_at(std::uint64_t offset, std::size_t count) const;
    void check_magic(std::uint64_t file_size);
    void write_at(std::uint64_t offset, std::string_view bytes) const;
    UniqueFd open_or_make() const;
    [[noreturn]] void fail(std::string_view what, int error) const;
    [[noreturn]] void fail_damaged() const;
    [[noreturn]] void refuse(const std::string& cause, const std::string& hint) const;

    std::string path_;
    UniqueFd fd_;
    bool on_nfs_ = false;
    std::uint64_t end_ = 0;  // of the last whole record read
};

}  // namespace tutti::store
