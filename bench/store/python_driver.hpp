// A Python program that measures a peer: it reads requests, one a line, and answers each with a line of JSON, the first
// one unasked (its version, or why it cannot). Threads: one.
#pragma once

#include "processes.hpp"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <memory>
#include <string>

namespace tutti::bench {

class PythonDriver {
 public:
    /// Throws std::runtime_error that says why `peer` is left out.
    PythonDriver(const std::string& peer, const std::string& python, const std::string& script);
    ~PythonDriver();  ///< the program sees its input end, and leaves
    PythonDriver(const PythonDriver&) = delete;
    PythonDriver& operator=(const PythonDriver&) = delete;

    const std::string& version() const { return version_; }
    nlohmann::json ask(const std::string& line);

 private:
    nlohmann::json answer();

    std::string script_;
    Process process_;
    using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
    File to_{nullptr, &std::fclose}, from_{nullptr, &std::fclose};
    std::string version_;
};

}  // namespace tutti::bench
