// tutti completion SHELL, and the command with which the build writes the files installed beside the program.
#include "cli/commands.hpp"
#include "cli/manual/page.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

namespace tutti::cli {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    std::ofstream out(file);
    out << text;
    if (!out.flush())
        throw InvalidArgument(fmt::format("{}: cannot be written: {}", file.string(), std::strerror(errno)));
}

}  // namespace

Command add_completion(CLI::App& app) {
    CLI::App* sub =
        app.add_subcommand("completion", "Print the script by which a shell completes tutti's command line");
    const auto shell = std::make_shared<std::string>();
    sub->add_option("shell", *shell, "which one")->required()->check(one_of({"bash", "zsh", "fish"}));
    sub->footer(
        "A package installs these scripts; these lines do where none did.\n\n"
        "Examples:\n"
        "  eval \"$(tutti completion bash)\"\n"
        "  source <(tutti completion zsh)\n"
        "  tutti completion fish > ~/.config/fish/completions/tutti.fish");
    return [shell] {
        std::fputs(manual::completion_script(*shell).c_str(), stdout);
        return 0;
    };
}

Command add_manual(CLI::App& app) {
    CLI::App* sub = app.add_subcommand("manual", "Write the man pages and the scripts for completion")->group("");
    const auto folder = std::make_shared<std::string>();
    sub->add_option("folder", *folder, "where")->required()->type_name("FOLDER");
    return [folder, &app] {
        for (const manual::Page& page : manual::pages_of(app)) {
            std::string name = page.name;
            std::ranges::replace(name, ' ', '-');
            write(fs::path(*folder) / "man" / (name + ".1"), manual::roff(page));
        }
        const fs::path scripts = fs::path(*folder) / "completion";
        write(scripts / "tutti", manual::completion_script("bash"));
        write(scripts / "_tutti", manual::completion_script("zsh"));
        write(scripts / "tutti.fish", manual::completion_script("fish"));
        return 0;
    };
}

}  // namespace tutti::cli
