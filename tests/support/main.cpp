// main() of every test executable: runs the tests, and appends "ROW<tab>executable:Suite.Name" to a file in
// TUTTI_SPEC_DIR for each row that a passing test covers. Forked children must leave with _exit.
#include "support/covers.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

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

}  // namespace

void tutti::test::covers_row(std::string_view id) {
    rows_of_running_test().emplace(id);
}

int main(int argc, char** argv) {
    ::testing::InitGoogleTest(&argc, argv);
    if (const char* directory = std::getenv("TUTTI_SPEC_DIR"); directory != nullptr && *directory != '\0') {
        const std::string name = std::filesystem::path(argv[0]).filename();
        const char* shard = std::getenv("GTEST_SHARD_INDEX");
        std::filesystem::create_directories(directory);
        ::testing::UnitTest::GetInstance()->listeners().Append(new RowRecorder(
            std::filesystem::path(directory) / (shard ? name + "." + shard + ".rows" : name + ".rows"), name));
    }
    return RUN_ALL_TESTS();
}
