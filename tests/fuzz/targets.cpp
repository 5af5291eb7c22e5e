#include "targets.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>

namespace tutti::fuzz {

std::span<const Target> targets() {
    static constexpr std::array all{
        Target{"store_stream", store_stream},
        Target{"store_requests", store_requests},
        Target{"handshake", handshake},
        Target{"mailbox", mailbox},
        Target{"object", object},
        Target{"cards", cards},
        Target{"dump", dump},
        Target{"record_file", record_file},
        Target{"tuning", tuning},
        Target{"hostfile", hostfile},
        Target{"rank_table", rank_table},
        Target{"faults", faults},
        Target{"schedules", schedules},
        Target{"graphs", graphs},
        Target{"lifeline", lifeline},
        Target{"http", http},
    };
    return all;
}

void wrong(std::string_view what) {
    std::fprintf(stderr, "fuzz: %.*s\n", static_cast<int>(what.size()), what.data());
    std::abort();
}

}  // namespace tutti::fuzz
