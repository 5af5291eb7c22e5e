// Card: a rank's description of itself for the other ranks; PMI calls it a business card.
//
// Threads: a value.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::rendezvous {

struct Card {
    std::string listen_host;
    std::uint16_t listen_port = 0;
    std::string local_endpoint;  ///< the abstract Unix socket at which ranks of its host connect; empty: none
    std::string host_key;        ///< equal for ranks that can share memory
    std::string host_name;
    int process = 0;
    std::uint64_t process_space = 0;  ///< the pid name space in which `process` is valid
    std::uint16_t pulse_port = 0;     ///< open as long as the process lives; 0: none
    std::uint64_t place_to_try = 0;  ///< an address in the process, for ranks that try whether they may read its memory
    std::string cannot_share;        ///< why the rank shares no memory with others; empty: it can. Only rank 0 reads it
    bool tls = false;                ///< the rank encrypts traffic that leaves its host
    std::string note;                ///< the rank's own text for the others
};

/// Whether both ranks are on one host and under one user, and each can address the other's process by its id.
inline bool are_near(const Card& a, const Card& b) {
    return a.host_key == b.host_key && a.process_space == b.process_space;
}

}  // namespace tutti::rendezvous
