#include "python_driver.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <stdexcept>

namespace tutti::bench {

PythonDriver::PythonDriver(const std::string& peer, const std::string& python, const std::string& script)
    : script_(script.substr(script.rfind('/') + 1)) {
    int to[2];
    int from[2];
    if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) throw std::runtime_error("cannot make a pipe");
    process_ = Process([&] {
        ::dup2(to[0], STDIN_FILENO);
        ::dup2(from[1], STDOUT_FILENO);
        ::execlp(python.c_str(), python.c_str(), script.c_str(), static_cast<char*>(nullptr));
    });
    ::close(to[0]);
    ::close(from[1]);
    to_.reset(::fdopen(to[1], "w"));
    from_.reset(::fdopen(from[0], "r"));
    nlohmann::json hello;
    try {
        hello = answer();
    } catch (const std::exception&) {
        throw std::runtime_error(peer + " is left out: " + python + " cannot run its script");
    }
    if (hello.contains("why")) throw std::runtime_error(hello["why"].get<std::string>());
    version_ = hello["version"];
}

PythonDriver::~PythonDriver() {
    to_.reset();
    from_.reset();
    (void)process_.join();
}

nlohmann::json PythonDriver::ask(const std::string& line) {
    std::fprintf(to_.get(), "%s\n", line.c_str());
    std::fflush(to_.get());
    return answer();
}

nlohmann::json PythonDriver::answer() {
    char line[4096];
    if (std::fgets(line, sizeof line, from_.get()) == nullptr) throw std::runtime_error(script_ + " has ended");
    return nlohmann::json::parse(line);
}

}  // namespace tutti::bench
