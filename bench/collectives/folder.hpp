// A folder for the files that a benchmark's programs exchange.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace tutti::bench {

/// Removed with everything in it.
class Folder {
 public:
    Folder() {
        std::string name = (std::filesystem::temp_directory_path() / "tutti-bench-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) {
            throw std::runtime_error("bench: no folder can be made in " +
                                     std::filesystem::temp_directory_path().string());
        }
        path_ = name;
    }
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
    std::filesystem::path path_;
};

}  // namespace tutti::bench
