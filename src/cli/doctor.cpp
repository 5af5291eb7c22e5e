// tutti doctor: tutti's findings where it runs. --env: which rank of which job this process is, and the source of that.
#include "cli/checkup.hpp"
#include "cli/commands.hpp"
#include "cli/manual/page.hpp"
#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/this_host.hpp"
#include "rendezvous/job_environment.hpp"

#include <tutti/error.hpp>
#include <tutti/version.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

namespace tutti::cli {
namespace {

std::string line(const char* what, const rendezvous::Fact& fact, const char* otherwise) {
    TUTTI_ASSERT(what != nullptr && otherwise != nullptr);
    return fact ? fmt::format("{:<17} {:<15} {}\n", what, fact.value, fact.source)
                : fmt::format("{:<17} {:<15} {}\n", what, "-", otherwise);
}

std::string secret() {
    for (const char* variable : {"TUTTI_JOB_SECRET", "TUTTI_JOB_SECRET_FILE"}) {
        if (env::get(variable)) return fmt::format("given           {}", variable);
    }
    return "-               rank 0 hands one out on its own host; jobs on several hosts need TUTTI_JOB_SECRET";
}

int print_environment() {
    const auto job = rendezvous::read_job_environment();
    std::string text = fmt::format("{:<17} {}\n", "launcher", job.launcher);
    text += line("rank", job.rank, "not set: RANK");
    text += line("world size", job.world_size, "not set: WORLD_SIZE");
    text += line("local rank", job.local_rank, "not set: LOCAL_RANK");
    text += line("local world size", job.local_world_size, "not set: LOCAL_WORLD_SIZE");
    text += line("master address", job.master_addr, "not set: MASTER_ADDR (127.0.0.1 for rank 0)");
    text += line("master port", job.master_port, "not set: MASTER_PORT");
    text += fmt::format("{:<17} {}\n", "store", job.store_is_hosted ? "the launcher's" : "rank 0's");
    text += fmt::format("{:<17} {}\n", "secret", secret());
    std::fwrite(text.data(), 1, text.size(), stdout);  // in one piece: ranks may print at the same time
    const bool complete = job.rank && job.world_size && job.master_port && (job.master_addr || job.rank.value == "0");
    return std::fflush(stdout) == 0 && complete ? 0 : 1;
}

// All variables, and their values here; of a secret only that it is set.
int print_variables() {
    for (const env::Variable& variable : env::known_variables()) {
        fmt::print("{:<28} {}\n", variable.name, variable.meaning);
        const auto value = env::get(variable.name);
        const bool secret = variable.name == "TUTTI_JOB_SECRET";
        if (value) fmt::print("{:<28} here: {}\n", "", secret ? "set" : *value);
    }
    return std::fflush(stdout) == 0 ? 0 : 1;
}

// Nobody sees colours in a file, and some do not want them (no-color.org).
bool coloured() {
    const char* const no = std::getenv("NO_COLOR");
    const char* const terminal = std::getenv("TERM");
    return ::isatty(STDOUT_FILENO) != 0 && (no == nullptr || *no == '\0') && terminal != nullptr &&
           std::string_view(terminal) != "dumb";
}

int print_checkup() {
    struct Word {
        const char *text, *colour;
    };
    constexpr std::array<Word, 4> words{{{"ok", "32"}, {"slow", "33"}, {"missing", "36"}, {"broken", "1;31"}}};
    const std::vector<Finding> findings = checkup();
    const bool colours = coloured();
    constexpr std::size_t column = 25;
    const std::size_t width = manual::width_of_output() - column;
    TUTTI_ASSERT(manual::width_of_output() > column);
    const auto below = [&](const std::string& text) {
        const std::string lines = manual::wrapped(text, width, column);
        fmt::print("{:{}}{}\n", "", column, colours ? fmt::format("\033[2m{}\033[0m", lines) : lines);
    };
    fmt::print("tutti {} on {}\n", version(), this_host::name());
    for (const Finding& finding : findings) {
        const Word& word = words.at(static_cast<std::size_t>(finding.kind));
        const std::string mark = fmt::format("{:<8}", word.text);
        fmt::print("{} {:<15} {}\n", colours ? fmt::format("\033[{}m{}\033[0m", word.colour, mark) : mark, finding.what,
                   manual::wrapped(finding.found, width, column));
        if (!finding.hint.empty()) below(finding.hint);
        if (!finding.compared.empty()) below("compared with: " + finding.compared);
    }
    const bool broken = std::ranges::any_of(findings, [](const Finding& f) { return f.kind == Finding::Kind::broken; });
    return std::fflush(stdout) == 0 && !broken ? 0 : 1;
}

}  // namespace

Command add_doctor(CLI::App& app) {
    CLI::App* sub = app.add_subcommand("doctor", "Tell what tutti finds here: what is missing, what is slow");
    const auto environment = std::make_shared<bool>(false), variables = std::make_shared<bool>(false);
    sub->add_flag("--variables", *variables)->description("every TUTTI_* variable: what it does, and what it is here");
    sub->add_flag("--env", *environment)
        ->description("which rank of which job this process would be, and from which variables");
    sub->footer(
        "Start it as you would start your program: srun -n 4 tutti doctor --env\n\n"
        "Exit status: 0 when ranks can meet (--env: when init_process_group() would know all it needs), otherwise 1.");
    return [environment, variables] {
        if (*variables) return print_variables();
        try {
            return *environment ? print_environment() : print_checkup();
        } catch (const InvalidArgument& error) {  // of a variable; not of a word of the command line
            fmt::print(stderr, "tutti: {}\n", error.what());
            return 1;
        }
    };
}

}  // namespace tutti::cli
