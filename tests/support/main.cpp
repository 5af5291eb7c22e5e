// main() of every test executable: runs the tests, and appends "ROW<tab>executable:Suite.Name" to a file in
// TUTTI_SPEC_DIR for each row that a passing test covers. Says at the end what was left out because this machine lacks
// something, in lines that tools/test adds to its sum. Forked children must leave with _exit.
#include "support/covers.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <string_view>

namespace {

std::set<std::string>& rows_of_running_test() {
    static std::set<std::string> rows;
    return rows;
}

class RowRecorder : public ::testing::EmptyTestEventListener {
 public:
    RowRecorder(std::filesystem::path file, std::string executable) : executable_(std::move(executable)), out_(file) {}

    void OnTestStart(const ::testing::TestInfo&) override { rows_of_running_test().clear(); }
    void OnTestEnd(const ::testing::TestInfo& info) override {
        if (!info.result()->Passed()) return;
        for (const auto& row : rows_of_running_test()) {
            out_ << row << '\t' << executable_ << ':' << info.test_suite_name() << '.' << info.name() << '\n';
        }
        out_.flush();
    }

 private:
    std::string executable_;
    std::ofstream out_;
};

// Lists skipped tests by the reason that they gave. A reason that begins with "by design" holds on every machine: that
// parameter has nothing to test.
class SkipReporter : public ::testing::EmptyTestEventListener {
 public:
    explicit SkipReporter(std::string executable) : executable_(std::move(executable)) {}

    void OnTestPartResult(const ::testing::TestPartResult& part) override {
        if (part.skipped()) reason_ = part.message();
    }
    void OnTestEnd(const ::testing::TestInfo& info) override {
        if (!info.result()->Skipped()) return;
        while (!reason_.empty() && reason_.back() == '\n') reason_.pop_back();
        if (std::string_view(reason_).starts_with("by design")) return;
        auto& [count, first] = skipped_[reason_];
        if (count++ == 0) first = std::string(info.test_suite_name()) + '.' + info.name();
    }
    void OnTestProgramEnd(const ::testing::UnitTest&) override {
        for (const auto& [reason, found] : skipped_) {
            const auto& [count, first] = found;
            std::cout << "left out: " << executable_ << ", " << first;
            if (count > 1) std::cout << " and " << count - 1 << " more";
            std::cout << ": " << (reason.empty() ? "no reason given" : reason) << std::endl;
        }
    }

 private:
    std::string executable_, reason_;
    std::map<std::string, std::pair<int, std::string>> skipped_;
};

}  // namespace

#if defined(__SANITIZE_ADDRESS__)
// Undefined behaviour executes an illegal instruction (cmake/Compiler.cmake), which AddressSanitizer reports with a
// stack. AddressSanitizer's library looks for this function.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() {
    return "handle_sigill=1";
}
#elif defined(__SANITIZE_THREAD__)
// libuv closes descriptors by the bare system call, which ThreadSanitizer does not see: it takes the next descriptor of
// that number, opened by another thread, for the one that libuv's thread has read from. ThreadSanitizer's library looks
// for this function, so it has to be exported.
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_suppressions() {
    return "race_top:epoll_ctl\n";
}
#endif

void tutti::test::covers_row(std::string_view id) {
    rows_of_running_test().emplace(id);
}

int main(int argc, char** argv) {
    ::testing::InitGoogleTest(&argc, argv);
    const std::string name = std::filesystem::path(argv[0]).filename();
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    listeners.Append(new SkipReporter(name));
    if (const char* directory = std::getenv("TUTTI_SPEC_DIR"); directory != nullptr && *directory != '\0') {
        const char* shard = std::getenv("GTEST_SHARD_INDEX");
        std::filesystem::create_directories(directory);
        listeners.Append(new RowRecorder(
            std::filesystem::path(directory) / (shard ? name + "." + shard + ".rows" : name + ".rows"), name));
    }
    return RUN_ALL_TESTS();
}
