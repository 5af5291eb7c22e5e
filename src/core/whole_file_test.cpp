#include "core/whole_file.hpp"

#include <tutti/error.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace tutti {
namespace {

class WholeFile : public testing::Test {
 protected:
    WholeFile() { std::filesystem::create_directory(folder); }
    ~WholeFile() override { std::filesystem::remove_all(folder); }
    static std::string refusal(const std::string& path, std::size_t most = 100) {
        try {
            return "taken: " + whole_file(path, most);
        } catch (const InvalidArgument& error) {
            return error.what();
        }
    }
    const std::string folder = "/tmp/tutti-whole-file-" + std::to_string(::getpid()), path = folder + "/file";
};

TEST_F(WholeFile, is_read_up_to_its_limit) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{99'999}, std::size_t{100'000}}) {
        std::ofstream(path, std::ios::trunc) << std::string(size, 'x');
        EXPECT_EQ(whole_file(path, 100'000), std::string(size, 'x'));
    }
    std::ofstream(path, std::ios::app) << 'x';
    EXPECT_EQ(refusal(path, 100'000), "cannot be read: it has more than 100000 bytes");
}

TEST_F(WholeFile, that_is_none_is_refused_at_once) {
    EXPECT_EQ(refusal("/dev/zero"), "cannot be read: it is a device: expected a file");
    EXPECT_EQ(refusal(folder), "cannot be read: it is a folder");
    EXPECT_EQ(refusal(path), "cannot be read: No such file or directory");
}

TEST_F(WholeFile, comes_from_a_pipe_whose_writer_takes_its_time) {
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    std::thread writer([&] {
        std::ofstream out(path);
        for (int i = 0; i < 3; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            out << "words " << std::flush;
        }
    });
    EXPECT_EQ(whole_file(path, 100), "words words words ");
    writer.join();
}

TEST_F(WholeFile, that_a_pipe_sends_without_end_is_refused_at_its_limit) {
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    std::thread writer([&] {
        const int fd = ::open(path.c_str(), O_WRONLY);
        const std::string text(1000, 'x');
        (void)!::write(fd, text.data(), text.size());
        ::close(fd);
    });
    EXPECT_EQ(refusal(path), "cannot be read: it has more than 100 bytes");
    writer.join();
}

}  // namespace
}  // namespace tutti
