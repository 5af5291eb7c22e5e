#include "faults.hpp"

#include <cstdio>
#include <cstdlib>
#include <regex>
#include <sstream>

namespace fake_cuda {

void Faults::set(const std::string& text) {
    std::vector<Fault> faults;
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ';');) {
        static const std::regex form(R"((\w+)@(\d+)(\+?)=(\d+))");
        std::smatch found;
        if (!std::regex_match(part, found, form)) {
            std::fprintf(stderr, "fake CUDA: \"%s\" in the faults \"%s\" is not of the form FUNCTION@N=ERROR\n",
                         part.c_str(), text.c_str());
            std::abort();
        }
        faults.push_back({found[1], std::stoull(found[2]), found[3].length() > 0, std::stoi(found[4])});
    }
    const std::lock_guard lock(mutex_);
    faults_ = std::move(faults);
}

int Faults::on_call(const std::string& name) {
    const std::lock_guard lock(mutex_);
    ++calls_[name];
    int error = 0;
    for (Fault& fault : faults_) {
        if (fault.name != name) continue;
        ++fault.seen;
        if (fault.seen == fault.at || (fault.and_later && fault.seen > fault.at)) error = fault.error;
    }
    return error;
}

std::uint64_t Faults::calls(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = calls_.find(name);
    return found != calls_.end() ? found->second : 0;
}

}  // namespace fake_cuda
