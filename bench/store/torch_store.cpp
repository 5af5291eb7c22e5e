// PyTorch's TCPStore as a contender: torch_store.py does the work, and is told what by lines. Threads: one.
#include "processes.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <stdexcept>

namespace tutti::bench {
namespace {

class Torch : public Contender {
 public:
    Torch(const std::string& python, const std::string& script) {
        int to[2];
        int from[2];
        if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0)
            throw std::runtime_error("cannot make a pipe");
        driver_ = Process([&] {
            ::dup2(to[0], STDIN_FILENO);
            ::dup2(from[1], STDOUT_FILENO);
            ::execlp(python.c_str(), python.c_str(), script.c_str(), static_cast<char*>(nullptr));
        });
        ::close(to[0]);
        ::close(from[1]);
        to_ = ::fdopen(to[1], "w");
        from_ = ::fdopen(from[0], "r");
        const auto hello = first_answer(python);
        if (hello.contains("why")) throw std::runtime_error(hello["why"].get<std::string>());
        version_ = hello["version"];
    }
    ~Torch() override {
        std::fclose(to_);  // the driver ends its server and leaves
        std::fclose(from_);
        (void)driver_.join();
    }
    Torch(const Torch&) = delete;
    Torch& operator=(const Torch&) = delete;

    std::string name() const override { return "torch " + version_; }
    Figures run(const Task& task) override {
        std::fprintf(to_, "%s %d %lld\n", std::string(name_of(task.work)).c_str(), task.clients,
                     static_cast<long long>(task.time.count()));
        std::fflush(to_);
        const auto result = answer();
        overheads_us_.push_back(result["overhead_us"]);
        return {result["median_us"], result["ops_per_s"]};
    }
    std::string remark() const override {
        char text[200];
        std::snprintf(text, sizeof text,
                      "torch's clients are Python: %.2f us that an empty call costs are taken off each operation",
                      median(overheads_us_));
        return text;
    }

 private:
    nlohmann::json first_answer(const std::string& python) {
        try {
            return answer();
        } catch (const std::exception&) {
            throw std::runtime_error("torch is left out: " + python + " cannot run its script");
        }
    }

    nlohmann::json answer() {
        char line[4096];
        if (std::fgets(line, sizeof line, from_) == nullptr) throw std::runtime_error("torch_store.py has ended");
        return nlohmann::json::parse(line);
    }

    Process driver_;
    std::FILE* to_ = nullptr;
    std::FILE* from_ = nullptr;
    std::string version_;
    std::vector<double> overheads_us_;
};

}  // namespace

std::unique_ptr<Contender> make_torch(const std::string& python, const std::string& script, std::string& why) {
    try {
        return std::make_unique<Torch>(python, script);
    } catch (const std::exception& error) {
        why = error.what();
        return nullptr;
    }
}

}  // namespace tutti::bench
