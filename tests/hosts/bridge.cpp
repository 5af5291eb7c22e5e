// bridge IF_A IF_B: a bad network between two hosts. It forwards Ethernet frames between two interfaces of this network
// namespace (AF_PACKET) with faults that lines on stdin set, and answers each with what it has counted so far:
//
//   loss P        of both ways, 0 to 1
//   delay MS      of each way
//   rate MBIT     of each way, with a queue of two thousand frames; 0: none
//   block WAY     none, ab (from A to B), ba or both
//   flip N        changes a byte in each of the next N long TCP segments from A to B, and makes their checksum right
//   quit          as the end of stdin
//
// bridge --whole-packets IF: the host at IF sends what fits the network, with complete checksums. Run it on both hosts:
// the kernel leaves both to network cards, of which there are none here.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::size_t queue_frames = 2000;
constexpr int frames_at_once = 256;
constexpr int long_segment = 300;  // bytes of payload
constexpr int flipped_byte = 290;  // of the payload

[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "bridge: %s: %s\n", what, std::strerror(errno));
    std::exit(1);
}

int open_interface(const char* name) {
    const int fd = ::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL));
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(::if_nametoindex(name));
    if (fd < 0 || ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fail(name);
    const int bytes = 8 << 20;
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes);
    return fd;
}

void send_whole_packets(const char* name) {
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (const std::uint32_t command : {ETHTOOL_STXCSUM, ETHTOOL_SSG, ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO}) {
        ethtool_value off{command, 0};
        ifreq request{};
        std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
        request.ifr_data = reinterpret_cast<char*>(&off);
        // Only the first must go: without it the kernel does not do the others either.
        if (::ioctl(fd, SIOCETHTOOL, &request) != 0 && command == ETHTOOL_STXCSUM) fail(name);
    }
    ::close(fd);
}

std::uint32_t sum_of(std::span<const std::uint8_t> bytes) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) sum += i % 2 == 0 ? bytes[i] << 8U : bytes[i];
    return sum;
}

// Of an Ethernet frame; false: it holds no long TCP segment.
bool flip_a_byte(std::span<std::uint8_t> frame) {
    constexpr std::size_t ethernet = sizeof(ether_header);
    if (frame.size() < ethernet + sizeof(iphdr) || frame[12] != 8 || frame[13] != 0) return false;
    const auto packet = frame.subspan(ethernet);
    iphdr ip;
    std::memcpy(&ip, packet.data(), sizeof ip);
    const std::size_t ip_bytes = ip.ihl * std::size_t{4}, total = ntohs(ip.tot_len);
    if (ip.protocol != IPPROTO_TCP || total > packet.size() || total < ip_bytes + sizeof(tcphdr)) return false;
    const auto segment = packet.subspan(ip_bytes, total - ip_bytes);
    tcphdr tcp;
    std::memcpy(&tcp, segment.data(), sizeof tcp);
    const std::size_t tcp_bytes = tcp.doff * std::size_t{4};
    if (segment.size() < tcp_bytes + long_segment) return false;
    segment[tcp_bytes + flipped_byte] ^= 0x55;
    segment[16] = segment[17] = 0;
    std::uint32_t sum = sum_of(packet.subspan(12, 8)) + IPPROTO_TCP + static_cast<std::uint32_t>(segment.size());
    sum += sum_of(segment);
    while (sum >> 16U != 0) sum = (sum & 0xffffU) + (sum >> 16U);
    segment[16] = static_cast<std::uint8_t>(~sum >> 8U);
    segment[17] = static_cast<std::uint8_t>(~sum);
    return true;
}

struct Frame {
    Clock::time_point due;
    std::vector<std::uint8_t> bytes;
};

/// From A to B, or back.
struct Way {
    int from, to;
    bool blocked = false;
    std::deque<Frame> queue{};
    Clock::time_point free_at{};  ///< when the link has sent what it has taken
    long forwarded = 0;
};

class Bridge {
 public:
    Bridge(int a, int b) : ways_{Way{.from = a, .to = b}, Way{.from = b, .to = a}} {}

    void run() {
        for (;;) {
            std::array<pollfd, 3> entries{{{ways_[0].from, POLLIN, 0}, {ways_[1].from, POLLIN, 0}, {0, POLLIN, 0}}};
            const timespec limit = until_next();
            ::ppoll(entries.data(), entries.size(), &limit, nullptr);
            if (entries[2].revents != 0 && !read_commands()) return;
            for (Way& way : ways_) take_frames(way);
            for (Way& way : ways_) send_due(way);
        }
    }

 private:
    timespec until_next() const {
        Clock::time_point next = Clock::now() + std::chrono::seconds(1);
        for (const Way& way : ways_) {
            if (!way.queue.empty()) next = std::min(next, way.queue.front().due);
        }
        const auto left = std::max(Clock::duration::zero(), next - Clock::now());
        const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
        return {ns / 1'000'000'000, ns % 1'000'000'000};
    }

    // False: the end.
    bool read_commands() {
        std::array<char, 500> buffer;
        const ssize_t count = ::read(0, buffer.data(), buffer.size());
        if (count <= 0) return false;
        commands_.append(buffer.data(), static_cast<std::size_t>(count));
        for (std::size_t end = 0; (end = commands_.find('\n')) != std::string::npos;) {
            const std::string line = commands_.substr(0, end);
            commands_.erase(0, end + 1);
            std::istringstream words(line);
            std::string command, value;
            words >> command >> value;
            if (command == "quit") return false;
            const bool known = set(command, value);
            std::printf("%s%s; forwarded %ld and %ld, dropped %ld, flipped %ld\n",
                        known ? "" : "unknown: ", line.c_str(), ways_[0].forwarded, ways_[1].forwarded, dropped_,
                        flipped_);
        }
        return true;
    }

    bool set(const std::string& command, const std::string& value) {
        const double number = std::atof(value.c_str());
        if (command == "loss") {
            loss_ = number;
        } else if (command == "delay") {
            delay_ = std::chrono::duration_cast<Clock::duration>(Seconds(number / 1000));
        } else if (command == "rate") {
            rate_ = number * 1e6;
        } else if (command == "flip") {
            to_flip_ = static_cast<long>(number);
        } else if (command == "block" && (value == "none" || value == "ab" || value == "ba" || value == "both")) {
            ways_[0].blocked = value == "ab" || value == "both";
            ways_[1].blocked = value == "ba" || value == "both";
        } else {
            return false;
        }
        return true;
    }

    void take_frames(Way& way) {
        for (int i = 0; i < frames_at_once; ++i) {
            std::array<std::uint8_t, 70'000> buffer;
            sockaddr_ll from{};
            socklen_t size = sizeof from;
            const ssize_t count =
                ::recvfrom(way.from, buffer.data(), buffer.size(), 0, reinterpret_cast<sockaddr*>(&from), &size);
            if (count <= 0) return;
            if (from.sll_pkttype == PACKET_OUTGOING) continue;
            const auto bytes = std::span(buffer).first(static_cast<std::size_t>(count));
            if (way.blocked || way.queue.size() >= queue_frames || (loss_ > 0 && chance_(random_) < loss_)) {
                ++dropped_;
                continue;
            }
            if (to_flip_ > 0 && &way == &ways_[0] && flip_a_byte(bytes)) {
                --to_flip_;
                ++flipped_;
            }
            Clock::time_point sent = Clock::now();
            if (rate_ > 0) {
                way.free_at = std::max(way.free_at, sent) +
                              std::chrono::duration_cast<Clock::duration>(Seconds(double(count) * 8 / rate_));
                sent = way.free_at;
            }
            way.queue.push_back({sent + delay_, {bytes.begin(), bytes.end()}});
            ++way.forwarded;
        }
    }

    static void send_due(Way& way) {
        for (const auto now = Clock::now(); !way.queue.empty() && way.queue.front().due <= now;) {
            const auto& bytes = way.queue.front().bytes;
            if (::send(way.to, bytes.data(), bytes.size(), 0) < 0 && (errno == EAGAIN || errno == ENOBUFS)) return;
            way.queue.pop_front();
        }
    }

    std::array<Way, 2> ways_;
    double loss_ = 0, rate_ = 0;
    Clock::duration delay_{};
    long to_flip_ = 0, flipped_ = 0, dropped_ = 0;
    std::mt19937 random_{1};
    std::uniform_real_distribution<double> chance_{0, 1};
    std::string commands_;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: bridge IF_A IF_B | bridge --whole-packets IF\n");
        return 2;
    }
    if (std::strcmp(argv[1], "--whole-packets") == 0) {
        send_whole_packets(argv[2]);
        return 0;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Bridge bridge(open_interface(argv[1]), open_interface(argv[2]));
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::printf("ready\n");
    bridge.run();
    return 0;
}
