// PyTorch's TCPStore as a contender: torch_store.py does the work, and reads requests, one a line. Threads: one.
#include "processes.hpp"
#include "python_driver.hpp"

#include <cstdio>
#include <stdexcept>

namespace tutti::bench {
namespace {

class Torch : public Contender {
 public:
    Torch(const std::string& python, const std::string& script) : driver_("torch", python, script) {}

    std::string name() const override { return "torch " + driver_.version(); }
    Figures run(const Task& task) override {
        const auto result = driver_.ask(std::string(name_of(task.work)) + " " + std::to_string(task.clients) + " " +
                                        std::to_string(task.time.count()));
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
    PythonDriver driver_;
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
