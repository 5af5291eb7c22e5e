// Finding: one thing that tutti has found out about this machine.
//
// Threads: a value.
#pragma once

#include <string>

namespace tutti::cli {

struct Finding {
    enum class Kind { good, slow, missing, broken } kind = Kind::good;
    std::string what, found;
    std::string hint{};      ///< the remedy; empty when good
    std::string compared{};  ///< good: the value it was compared with; empty if `found` has it
};

}  // namespace tutti::cli
