// A FileStore's file holds its jobs' secrets, and its content may come from anybody.
#include "store/key_map.hpp"
#include "store/process_test_support.hpp"
#include "store/record_file.hpp"
#include "store/wire.hpp"
#include "support/covers.hpp"
#include "support/message_of.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <filesystem>
#include <fstream>
#include <random>

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::covers;
using test::expect_contains;
using test::message_of;
using test::TempPath;

std::string refusal(const std::string& path) {
    try {
        FileStore(path).set("key", "value");
    } catch (const DistStoreError& error) {
        EXPECT_EQ(error.code(), ErrorCode::security) << error.what();
        return error.what();
    }
    ADD_FAILURE() << path << " was taken";
    return {};
}

void make(const std::string& path, mode_t mode) {
    std::ofstream file(path);
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
}

TEST(FileSafety, a_file_that_others_may_use_is_refused_with_the_command_that_mends_it) {
    const TempPath file("open");
    for (const mode_t mode : {0644U, 0640U, 0666U, 0601U, 0620U}) {
        make(file.path, mode);
        const std::string text = refusal(file.path);
        expect_contains(text, fmt::format("mode {:04o}", mode));
        expect_contains(text, "chmod 600 " + file.path);
        EXPECT_EQ(std::filesystem::file_size(file.path), 0U) << "something was written";
    }
    ASSERT_EQ(::chmod(file.path.c_str(), 0600), 0);
    FileStore store(file.path);
    store.set("key", "value");
    EXPECT_EQ(FileStore(file.path).get("key"), "value");
}

TEST(FileSafety, a_file_that_a_store_makes_is_the_users_alone_whatever_the_umask) {
    for (const mode_t mask : {0U, 022U, 0277U}) {
        const TempPath file(fmt::format("made{:o}", mask));
        const mode_t before = ::umask(mask);
        FileStore store(file.path);
        ::umask(before);
        struct stat info {};
        ASSERT_EQ(::stat(file.path.c_str(), &info), 0);
        EXPECT_EQ(info.st_mode & 07777U, 0600U) << std::oct << mask;
    }
}

TEST(FileSafety, links_are_not_followed) {
    const TempPath file("target"), link("link"), dangling("dangling");
    make(file.path, 0600);
    ASSERT_EQ(::symlink(file.path.c_str(), link.path.c_str()), 0);
    expect_contains(refusal(link.path), "symbolic link");
    EXPECT_EQ(std::filesystem::file_size(file.path), 0U);
    ASSERT_EQ(::symlink((file.path + "-elsewhere").c_str(), dangling.path.c_str()), 0);
    expect_contains(refusal(dangling.path), "symbolic link");
    EXPECT_FALSE(std::filesystem::exists(file.path + "-elsewhere"));
}

// Also where the kernel itself protects a folder like /tmp (fs.protected_regular): then it answers "permission denied".
TEST(FileSafety, another_users_file_is_refused_in_a_folder_that_everybody_may_write_to) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make another user's file";
    const std::string folder = ::testing::TempDir() + "tutti_sticky_" + std::to_string(::getpid());
    std::filesystem::create_directory(folder);
    ASSERT_EQ(::chmod(folder.c_str(), 01777), 0);
    const std::string path = folder + "/file";
    for (const mode_t mode : {0600U, 0666U}) {
        make(path, mode);
        ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
        for (const uid_t user : {uid_t{0}, uid_t{12345}}) {
            test::Child child([&] {
                if (::setresuid(user, user, user) != 0) return 2;
                const std::string text = refusal(path);
                return text.find("belongs to user 65534") != std::string::npos ? 0 : 1;
            });
            EXPECT_EQ(child.wait(), 0) << "user " << user << ", mode " << std::oct << mode;
        }
        std::filesystem::remove(path);
    }
    std::filesystem::remove_all(folder);
}

TEST(FileSafety, what_is_no_file_is_refused) {
    const TempPath pipe("pipe");
    ASSERT_EQ(::mkfifo(pipe.path.c_str(), 0600), 0);
    expect_contains(refusal(pipe.path), "not a regular file");
}

/// A file with one record more than a store writes there.
void add_record(const std::string& path, const std::string& body) {
    store::RecordFile file(path);
    const store::RecordFile::Lock lock(file, store::RecordFile::Access::write, Deadline::after(10s), nullptr);
    file.read_new([](std::string_view) {});
    file.append(body);
}

std::string record(char kind, std::initializer_list<std::string_view> fields) {
    std::string body(1, kind);
    for (const auto field : fields) {
        const auto size = store::encode_number(field.size());
        body.append(size.data(), size.size());
        body += field;
    }
    return body;
}

TEST(FileSafety, a_counter_that_is_no_number_is_an_error_of_the_store) {
    for (const char* number : {"", "x", "12x", " 1", "0x10", "99999999999999999999", "-9223372036854775809", "1e3"}) {
        const TempPath file("number");
        add_record(file.path, record('c', {"counter", number}));
        const std::string text = message_of<DistStoreError>([&] { (void)FileStore(file.path).get("counter", 1s); });
        expect_contains(text, file.path);
        expect_contains(text, "expected an integer");
    }
}

TEST(FileSafety, records_of_any_bytes_make_no_other_errors) {
    std::mt19937 random(4711);
    const std::string kinds = "scaejlw?";
    int refused = 0;
    for (int round = 0; round < 300; ++round) {
        const TempPath file("random");
        std::string body = record(kinds[random() % kinds.size()], {"key", std::string(random() % 20, 'v'), "-1 -1 x"});
        for (unsigned hits = random() % 4; hits > 0; --hits)
            body[random() % body.size()] = static_cast<char>(random() % 2 == 0 ? random() : 0xff);
        add_record(file.path, random() % 8 == 0 ? "" : body);
        try {
            FileStore store(file.path, random() % 2 == 0 ? 3 : -1, 1s);
            (void)store.add("another", 1);
            store.wait({"another"}, 1s);
        } catch (const DistError&) {
            ++refused;
        }
    }
    EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace tutti
