// Jobs that are killed: nothing of theirs is in the way of the next one, which uses the same domain at once.
#include "atb/ranks.hpp"
#include "support/covers.hpp"

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <new>
#include <set>
#include <sstream>
#include <string>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using atb::AllToAllVV2;
using atb::AllToAllVV2Param;
using Clock = std::chrono::steady_clock;
using ParamOf = std::function<AllToAllVV2Param(int rank)>;

/// A number that processes share.
class SharedCount {
 public:
    SharedCount() {
        void* memory =
            ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        count_ = new (memory) std::atomic<int>(0);
    }
    ~SharedCount() { ::munmap(count_, sizeof(std::atomic<int>)); }
    std::atomic<int>& operator*() const { return *count_; }

 private:
    std::atomic<int>* count_;
};

std::set<std::string> system_v_objects() {
    std::set<std::string> lines;
    for (const std::string kind : {"shm", "sem", "msg"}) {
        std::ifstream file("/proc/sysvipc/" + kind);
        std::string key, id;
        for (std::string line; std::getline(file, line);) {
            std::istringstream(line) >> key >> id;
            lines.insert(kind + ' ' + key + ' ' + id);
        }
    }
    return lines;
}

/// Doors that are open, in this network namespace.
std::set<std::string> doors() {
    std::set<std::string> names;
    std::ifstream sockets("/proc/net/unix");
    for (std::string line; std::getline(sockets, line);) {
        if (const auto name = line.find("@tutti/atb/"); name != std::string::npos) names.insert(line.substr(name));
    }
    return names;
}

std::set<std::string> files_in(const char* folder) {
    std::set<std::string> names;
    for (const auto& file : std::filesystem::directory_iterator(folder)) names.insert(file.path().string());
    return names;
}

// They are stopped first: one that saw the end of another would end by itself.
void kill_at_once(const std::vector<pid_t>& children) {
    for (const int signal : {SIGSTOP, SIGKILL}) {
        for (const pid_t child : children) ::kill(child, signal);
    }
    for (const pid_t child : children) EXPECT_TRUE(WIFSIGNALED(status_of(child)));
}

class Jobs : public Atb {
 protected:
    static constexpr int ranks = 3;

    // Other programs come and go on this machine: what counts is what was not there before, and stays.
    void TearDown() override {
        std::set<std::string> stayed = left_now();
        for (const auto until = Clock::now() + 5s; !stayed.empty() && Clock::now() < until;) {
            std::this_thread::sleep_for(20ms);
            const auto now = left_now();
            std::erase_if(stayed, [&](const std::string& name) { return !now.contains(name); });
        }
        for (const std::string& name : stayed) ADD_FAILURE() << "left behind: " << name;
    }
    std::set<std::string> left_now() const {
        std::set<std::string> left = doors();
        for (const std::string& object : system_v_objects()) left.insert(object);
        for (const std::string& file : files_in("/dev/shm")) {
            if (file.find("tutti") != std::string::npos || file.find("sem.") != std::string::npos) left.insert(file);
        }
        std::erase_if(left, [&](const std::string& name) { return before_.contains(name); });
        return left;
    }
    void SetUp() override { before_ = left_now(); }
    std::set<std::string> before_;

    // Ranks that exchange 1 MB again and again, all killed at once in the midst of it.
    static void kill_a_job_in_the_middle(const ParamOf& param_of) {
        const SharedCount under_way;
        std::vector<pid_t> children;
        for (int rank = 0; rank < ranks; ++rank) {
            children.push_back(start_process(rank, [&](int me) {
                AllToAllVV2 operation(param_of(me));
                const std::vector<int> x(ranks << 18, me);
                for (;;) {
                    operation.execute(x);
                    ++*under_way;
                }
            }));
        }
        const auto until = Clock::now() + 30s;
        while (*under_way < 2 * ranks && Clock::now() < until) std::this_thread::sleep_for(1ms);
        EXPECT_GE(*under_way, 2 * ranks) << "the job has not begun";
        kill_at_once(children);
    }

    static void the_next_job_works(const ParamOf& param_of) {
        const auto began = Clock::now();
        run_processes(ranks, [&](int rank) {
            AllToAllVV2 operation(param_of(rank));
            EXPECT_EQ(sum_over(operation, rank + 1), 6);
        });
        EXPECT_LT(Clock::now() - began, 10s);
    }
};

TEST_F(Jobs, that_are_killed_leave_nothing_that_is_in_the_way_of_the_next) {
    covers("S21-027");
    const ParamOf param_of = [](int rank) {
        return AllToAllVV2Param{.rank = rank, .rankSize = ranks, .commDomain = "again"};
    };
    for (int time = 0; time < 3; ++time) {
        kill_a_job_in_the_middle(param_of);
        the_next_job_works(param_of);
    }
}

TEST_F(Jobs, with_a_rank_table_that_are_killed_leave_its_port_to_the_next) {
    covers("S21-010", "S21-027");
    const auto path = std::filesystem::temp_directory_path() / ("atb_jobs_" + std::to_string(::getpid()) + ".json");
    std::ofstream(path) << R"({"server_list": [{"server_id": "a", "device": [{"device_id": 0, "rank_id": 0},
        {"device_id": 1, "rank_id": 1}, {"device_id": 2, "rank_id": 2}]}]})";
    const ParamOf param_of = [&](int rank) { return AllToAllVV2Param{.rank = rank, .rankTableFile = path.string()}; };
    kill_a_job_in_the_middle(param_of);
    the_next_job_works(param_of);
    std::filesystem::remove(path);
}

TEST_F(Jobs, that_are_killed_before_all_have_come_leave_nothing_that_is_in_the_way_of_the_next) {
    covers("S21-027");
    const ParamOf param_of = [](int rank) { return AllToAllVV2Param{.rank = rank, .rankSize = ranks}; };
    std::vector<pid_t> children;  // the last rank never comes
    for (int rank = 0; rank + 1 < ranks; ++rank)
        children.push_back(start_process(rank, [&](int me) { AllToAllVV2 operation(param_of(me)); }));
    std::this_thread::sleep_for(500ms);
    kill_at_once(children);
    the_next_job_works(param_of);
}

TEST_F(Jobs, of_which_one_rank_is_killed_tell_the_others_and_can_begin_again) {
    covers("S21-027");
    const auto param_of = [](int rank) { return AllToAllVV2Param{.rank = rank, .rankSize = ranks}; };
    const SharedCount known;
    const auto survivor = [&](int rank) {
        AllToAllVV2 operation(param_of(rank));
        EXPECT_EQ(sum_over(operation, rank), 3);
        const std::string text = message_of<PeerLost>([&] { sum_over(operation, rank); });
        EXPECT_NE(text.find("rank 2"), std::string::npos) << text;
        ++*known;
        EXPECT_EQ(sum_over(operation, rank + 1), 6) << "with another process in its place";
    };
    std::vector<pid_t> children{start_process(0, survivor), start_process(1, survivor)};
    const pid_t victim = start_process(2, [&](int rank) {
        AllToAllVV2 operation(param_of(rank));
        EXPECT_EQ(sum_over(operation, rank), 3);
        std::this_thread::sleep_for(200ms);
        ::kill(::getpid(), SIGKILL);
    });
    EXPECT_TRUE(WIFSIGNALED(status_of(victim)));
    const auto until = Clock::now() + 30s;
    while (*known < 2 && Clock::now() < until) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(*known, 2) << "the survivors have not heard of it";
    children.push_back(start_process(2, [&](int rank) {
        AllToAllVV2 operation(param_of(rank));
        EXPECT_EQ(sum_over(operation, rank + 1), 6);
    }));
    for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);
}

}  // namespace
}  // namespace tutti::test
