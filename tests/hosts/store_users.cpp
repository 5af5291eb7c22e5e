// A process of a store with a standby: store_users ROLE HOST PORT SECONDS. ROLE: primary and standby serve it for so
// long; user adds to a counter, and prints each sum with the time that it took, or the error that ended it.
#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

int main(int argc, char** argv) {
    using namespace std::chrono;
    if (argc != 5) return 2;
    const std::string role = argv[1];
    const auto end = steady_clock::now() + seconds(std::atoi(argv[4]));
    try {
        tutti::TCPStore store({.host = argv[2],
                               .port = static_cast<std::uint16_t>(std::atoi(argv[3])),
                               .is_master = role == "primary",
                               .timeout = seconds(60),
                               .with_standby = role == "primary",
                               .is_standby = role == "standby"});
        std::printf("running\n");
        std::fflush(stdout);
        while (steady_clock::now() < end) {
            std::this_thread::sleep_for(milliseconds(20));
            if (role != "user") continue;
            const auto start = steady_clock::now();
            const auto sum = static_cast<long long>(store.add("sum", 1));
            std::printf("sum %lld %lld\n", sum,
                        static_cast<long long>(duration_cast<milliseconds>(steady_clock::now() - start).count()));
            std::fflush(stdout);
        }
        std::printf("done\n");
    } catch (const tutti::DistError& error) {
        std::printf("error %s\n", error.what());
        return 1;
    }
    return 0;
}
