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

std::string script_of(const std::string& shell, const CLI::App& app) {
    const auto pages = manual::pages_of(app);
    return shell == "bash"  ? manual::bash_completion(pages)
           : shell == "zsh" ? manual::zsh_completion(pages)
                            : manual::fish_completion(pages);
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
    return [shell, &app] {
        const std::string text = script_of(*shell, app);
        return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0 ? 0 : 1;
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
        write(scripts / "tutti", script_of("bash", app));
        write(scripts / "_tutti", script_of("zsh", app));
        write(scripts / "tutti.fish", script_of("fish", app));
        return 0;
    };
}

}  // namespace tutti::cli
