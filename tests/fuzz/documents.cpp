// What tutti reads of files and variables, and of other ranks through the store.
#include "algorithm/parts.hpp"
#include "atb/rank_table.hpp"
#include "graph/text.hpp"
#include "launch/hosts.hpp"
#include "object/codec.hpp"
#include "operation/faults.hpp"
#include "record/dump.hpp"
#include "rendezvous/meeting_records.hpp"
#include "rendezvous/table.hpp"
#include "schedule/prove.hpp"
#include "schedule/text.hpp"
#include "store/record_file.hpp"
#include "targets.hpp"
#include "tune/cache.hpp"

#include <tutti/atb.hpp>
#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace tutti::fuzz {
namespace {

// tutti's own errors are a parser's way to refuse.
template <class F>
bool refused(F parse) {
    try {
        parse();
        return false;
    } catch (const DistError& error) {
        if (std::string_view(error.what()).empty()) wrong("an error without a sentence");
        return true;
    }
}

// In a folder of this process that is in memory where there is such a one.
const std::string& file_with(std::string_view bytes) {
    static const std::string path = [] {
        std::string folder = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm/tutti-fuzz-XXXXXX" : "/tmp/tutti-fuzz-XXXXXX";
        if (::mkdtemp(folder.data()) == nullptr) wrong("there is no folder for files");
        static const std::string made = folder;
        std::atexit([] {
            ::unlink((made + "/input").c_str());
            ::rmdir(made.c_str());
        });
        return folder + "/input";
    }();
    ::unlink(path.c_str());
    std::FILE* const file = std::fopen(path.c_str(), "wb");
    if (file == nullptr) wrong("a file could not be written");
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    std::fclose(file);
    ::chmod(path.c_str(), 0600);
    return path;
}

}  // namespace

// A text that is taken is written, read again and, where it is small, proved.
void schedules(std::string_view bytes) {
    refused([&] {
        const schedule::Recipe recipe =
            schedule::parse(bytes, "input", schedule::InputIs::separate, &algorithm::parts());
        const std::string text = schedule::to_text(recipe);
        if (schedule::to_text(schedule::parse(text, "its text")) != text) wrong("a text of schedules changes");
        constexpr std::uint64_t bytes_of_proof = std::uint64_t{1} << 22;
        (void)schedule::prove(recipe.ranks, recipe.contract, schedule::Budget(bytes_of_proof));
    });
}

// A text that is taken is written, read again and, where it is small, proved.
void graphs(std::string_view bytes) {
    refused([&] {
        const std::vector<graph::Graph> all = graph::read_graphs(bytes, "input");
        std::size_t nodes = 0;
        for (const graph::Graph& one : all) {
            if (!(graph::Graph::from_text(one.to_text()) == one)) wrong("a graph changes on its way");
            nodes += one.nodes.size();
        }
        if (nodes < 200) (void)graph::prove(all);
    });
}

// What can be read can be written, and read again.
void object(std::string_view bytes) {
    refused([&] {
        const std::string once = object::encode_string(object::decode_string(bytes));
        if (object::encode_string(object::decode_string(once)) != once) wrong("an object changed on its way");
        const Tensor buffer = empty(uint8, Extents::of(static_cast<std::int64_t>(bytes.size())));
        if (!bytes.empty()) std::memcpy(buffer.raw_data(), bytes.data(), bytes.size());
        if (object::encode_string(object::decode_shared({buffer, bytes.size()})) != once)
            wrong("an object is another one in a message");
    });
}

void cards(std::string_view bytes) {
    refused([&] { (void)rendezvous::decode_card(bytes, 3); });
    refused([&] { (void)rendezvous::decode_table(bytes, 2); });
    refused([&] { (void)rendezvous::decode_record<rendezvous::MeetingCard>(bytes, "fuzz", "a card"); });
    refused([&] { (void)rendezvous::decode_record<rendezvous::MeetingOutcome>(bytes, "fuzz", "an outcome"); });
}

void dump(std::string_view bytes) {
    refused([&] {
        const std::string once = record::encode(record::decode(bytes, "input"));
        if (record::encode(record::decode(once, "again")) != once) wrong("a dump changed on its way");
    });
}

// Reads what is there, appends a record, and finds it behind the others.
void record_file(std::string_view bytes) {
    refused([&] {
        const std::string& path = file_with(bytes);
        const Deadline soon = Deadline::after(std::chrono::seconds(5));
        std::size_t before = 0, after = 0;
        std::string last;
        store::RecordFile file(path);
        {
            const store::RecordFile::Lock lock(file, store::RecordFile::Access::write, soon, nullptr);
            file.read_new([&](std::string_view) { ++before; });
            file.append("the last");
        }
        store::RecordFile reader(path);
        const store::RecordFile::Lock lock(reader, store::RecordFile::Access::read, soon, nullptr);
        reader.read_new([&](std::string_view body) { ++after, last = body; });
        if (after != before + 1 || last != "the last") wrong("a record was lost");
    });
}

void tuning(std::string_view bytes) {
    refused([&] { (void)tune::costs_of(object::decode_string(bytes)); });
}

void hostfile(std::string_view bytes) {
    const std::size_t end = std::min(bytes.find('\0'), bytes.size());
    refused([&] {
        const auto hosts = launch::read_hostfile(file_with(bytes.substr(end)));
        (void)launch::select_hosts(hosts, {.include = std::string(bytes.substr(0, end))});
    });
    refused([&] {
        const auto hosts = launch::read_hostfile(file_with("a slots=4\nb slots=2\n"));
        (void)launch::select_hosts(hosts, {.exclude = std::string(bytes)});
    });
}

void rank_table(std::string_view bytes) {
    try {
        if (const auto table = atb::parse_rank_table(bytes, "input", "")) (void)table->fingerprint();
    } catch (const atb::Error&) {
        return;
    }
}

void faults(std::string_view bytes) {
    refused([&] { (void)detail::parse_faults(bytes); });
}

}  // namespace tutti::fuzz
