// What the benches have in common that are one rank of a job.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace tutti::bench {

/// Prints the rows, a line each, and writes them to the file, if it has a name. Throws std::runtime_error that names
/// the file if it cannot be written.
inline void report(const std::vector<nlohmann::json>& rows, const std::string& file) {
    for (const auto& row : rows) std::printf("%s\n", row.dump().c_str());
    if (file.empty()) return;
    std::ofstream out(file);
    out << nlohmann::json(rows).dump(1) << '\n';
    out.close();
    if (!out) throw std::runtime_error("--json " + file + " cannot be written");
}

/// The exit status of a program that `tutti run` starts, and that calls `run`.
template <class Run>
int run_as_rank(const char* program, const Run& run) {
    if (std::getenv("RANK") == nullptr || std::getenv("WORLD_SIZE") == nullptr) {
        std::fprintf(stderr, "%s: RANK is not set; start it with: tutti run -n 2 %s\n", program, program);
        return 1;
    }
    try {
        run();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", program, error.what());
        return 1;
    }
    return 0;
}

}  // namespace tutti::bench
