// The cache against hostile files, the setting, and the agreement of ranks.
#include "tune/tune.hpp"

#include "algorithm/select.hpp"
#include "core/socket.hpp"
#include "object/codec.hpp"
#include "tune/cache.hpp"
#include "tune/machine.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tutti/error.hpp>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <sstream>
#include <thread>

namespace tutti::tune {
namespace {

using algorithm::CostModel;
using algorithm::Rule;

/// A folder of its own, gone at the end.
class Folder {
 public:
    Folder() {
        std::string name = (std::filesystem::temp_directory_path() / "tutti-tune-XXXXXX").string();
        path_ = ::mkdtemp(name.data());
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    const std::string& path() const { return path_; }

 private:
    std::string path_;
};

Measurement some_costs() {
    Measurement measured{.missing = 5, .attempts = 2, .circumstances = {0.5, 0.125, 0.25, 0.75, 1'700'000'000}};
    double value = 1;
    for (const auto& field : algorithm::cost_fields())
        measured.costs.*field.value = std::clamp(value += 0.123456789012345, field.min, field.max);
    return measured;
}

std::string refusal(const std::function<void()>& call) {
    try {
        call();
    } catch (const InvalidArgument& error) {
        return error.what();
    }
    return "";
}

TEST(Cache, gives_back_what_it_was_given_for_this_topology_only) {
    const Folder folder;
    const Cache cache("a host", folder.path());
    EXPECT_EQ(cache.load(), std::nullopt);
    ASSERT_TRUE(cache.save(some_costs()));
    EXPECT_EQ(cache.load(), some_costs());
    EXPECT_EQ(Cache("another host", folder.path()).load(), std::nullopt);
    const auto file = std::filesystem::path(folder.path()) / "tutti" / cache.file_name();
    EXPECT_EQ(std::filesystem::status(file).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    // Nothing but the file: no draft is left.
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(file.parent_path()), {}), 1);
}

TEST(Cache, ignores_every_damaged_file) {
    const Folder folder;
    const Cache cache("a host", folder.path());
    ASSERT_TRUE(cache.save(some_costs()));
    const auto file = std::filesystem::path(folder.path()) / "tutti" / cache.file_name();
    std::stringstream good;
    good << std::ifstream(file).rdbuf();
    const std::string text = good.str();
    const auto write = [&](const std::string& bytes) { std::ofstream(file, std::ios::trunc) << bytes; };
    for (std::size_t size = 0; size + 1 < text.size(); size += 7) {
        write(text.substr(0, size));
        EXPECT_EQ(cache.load(), std::nullopt) << size;
    }
    for (const char byte : {'\0', '\xff', '9', '}', '"'}) {
        for (std::size_t at = 0; at < text.size(); at += 13) {
            std::string damaged = text;
            damaged[at] = byte;
            write(damaged);
            if (const auto read = cache.load()) {  // a digit may have changed: then it is within its bounds
                for (const auto& field : algorithm::cost_fields()) {
                    EXPECT_GE(read->costs.*field.value, field.min);
                    EXPECT_LE(read->costs.*field.value, field.max);
                }
            }
        }
    }
    const auto expect_ignored = [&](const Object& object) {
        write(object::encode_string(object));
        EXPECT_EQ(cache.load(), std::nullopt) << to_string(object);
    };
    for (const Object& object : {Object(), Object(1), Object("a host"), Object::list({1, 2}), Object::map()})
        expect_ignored(object);
    const Object good_costs = object_of(some_costs().costs);
    // A whole file in which one entry is another; empty: a good one.
    const auto with = [&](const std::string& name, const Object& value) {
        Object all = Object::map({{"machine", "a host"},
                                  {"costs", good_costs},
                                  {"missing", 0},
                                  {"attempts", 1},
                                  {"load", 0.5},
                                  {"stolen", 0.5},
                                  {"waited", 0.5},
                                  {"spread", 0.5},
                                  {"when", 1}});
        if (!name.empty()) all.at(name) = value;
        return all;
    };
    write(object::encode_string(with("", {})));
    EXPECT_NE(cache.load(), std::nullopt) << "what is changed below is good before";
    const auto expect_costs_ignored = [&](const Object& costs) { expect_ignored(with("costs", costs)); };
    expect_ignored(Object::map({{"machine", "a host"}, {"costs", good_costs}}));
    expect_ignored(Object::map({{"machine", "a host"}, {"costs", good_costs}, {"missing", 0}, {"attempts", 1}}));
    expect_ignored(with("machine", "A host"));
    expect_ignored(with("missing", -1));
    expect_ignored(with("attempts", "1"));
    expect_ignored(with("load", "much"));
    expect_ignored(with("when", 0.5));
    expect_costs_ignored(Object());
    for (const Object& value : {Object(-1.0), Object(1e300), Object(std::numeric_limits<double>::infinity()),
                                Object(std::nan("")), Object("two"), Object()}) {
        Object costs(good_costs);
        costs.at("cores") = value;
        expect_costs_ignored(costs);
    }
    Object costs(good_costs);
    costs.as_map().front().first = "corse";
    expect_costs_ignored(costs);
    costs.as_map().emplace_back("more", 1.0);
    expect_costs_ignored(costs);
    for (const std::string& bytes : {std::string(100'000, ' '), std::string("{}"), std::string(3000, '[')}) {
        write(bytes);
        EXPECT_EQ(cache.load(), std::nullopt) << bytes.substr(0, 200);
    }
    write(text);
    EXPECT_EQ(cache.load(), some_costs());
}

TEST(Cache, ignores_what_others_could_have_written) {
    const Folder folder;
    const Cache cache("a host", folder.path());
    ASSERT_TRUE(cache.save(some_costs()));
    const std::string own = folder.path() + "/tutti", file = own + "/" + cache.file_name();
    ASSERT_EQ(::chmod(file.c_str(), 0666), 0);
    EXPECT_EQ(cache.load(), std::nullopt);
    ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
    EXPECT_EQ(cache.load(), some_costs());
    if (::geteuid() == 0) {
        ASSERT_EQ(::chown(file.c_str(), 12345, 12345), 0);
        EXPECT_EQ(cache.load(), std::nullopt);
    }
    // A link, a pipe, a folder in its place.
    std::filesystem::rename(file, own + "/elsewhere");
    ASSERT_EQ(::symlink((own + "/elsewhere").c_str(), file.c_str()), 0);
    EXPECT_EQ(cache.load(), std::nullopt);
    ASSERT_EQ(::unlink(file.c_str()), 0);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    EXPECT_EQ(cache.load(), std::nullopt);
    ASSERT_EQ(::unlink(file.c_str()), 0);
    ASSERT_EQ(::mkdir(file.c_str(), 0700), 0);
    EXPECT_EQ(cache.load(), std::nullopt);
    EXPECT_FALSE(cache.save(some_costs()));
    // The folder itself.
    ASSERT_EQ(::chmod(own.c_str(), 0777), 0);
    Cache open("a host", folder.path());
    EXPECT_FALSE(open.usable());
    EXPECT_FALSE(open.save(some_costs()));
    EXPECT_FALSE(open.claim());
}

TEST(Cache, does_without_a_folder_that_can_be_written) {
    const Folder folder;
    std::ofstream(folder.path() + "/file") << "not a folder";
    for (const std::string& place :
         {std::string(), folder.path() + "/file", folder.path() + "/no/such/folder", std::string("/proc/nowhere")}) {
        Cache cache("a host", place);
        EXPECT_FALSE(cache.usable()) << place;
        EXPECT_EQ(cache.load(), std::nullopt);
        EXPECT_FALSE(cache.save(some_costs()));
        EXPECT_FALSE(cache.claim());
    }
}

TEST(Cache, is_not_written_beyond_the_limit_for_files) {
    const Folder folder;
    const pid_t child = ::fork();
    if (child == 0) {
        const rlimit none{0, 0};
        ::setrlimit(RLIMIT_FSIZE, &none);
        ::_exit(Cache("a host", folder.path()).save(some_costs()) ? 1 : 0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "ended by signal " << WTERMSIG(status);
    EXPECT_EQ(Cache("a host", folder.path()).load(), std::nullopt);
}

TEST(Cache, lets_one_of_many_measure) {
    const Folder folder;
    Cache first("a host", folder.path());
    EXPECT_TRUE(first.claim());
    {
        Cache second("a host", folder.path());
        EXPECT_FALSE(second.claim());
    }
    EXPECT_TRUE(first.claim());
}

TEST(Cache, survives_many_writers) {
    const Folder folder;
    std::vector<std::thread> writers;
    for (int i = 0; i < 4; ++i) {
        writers.emplace_back([&folder] {
            const Cache cache("a host", folder.path());
            for (int turn = 0; turn < 50; ++turn) {
                (void)cache.save(some_costs());
                if (const auto costs = cache.load()) {
                    EXPECT_EQ(*costs, some_costs());
                }
            }
        });
    }
    for (auto& writer : writers) writer.join();
}

TEST(Machine, numbers_lie_within_their_bounds_and_travel_as_objects) {
    const CostModel costs = measure(Deadline::after(measuring_limit)).costs;
    for (const auto& field : algorithm::cost_fields()) {
        EXPECT_GE(costs.*field.value, field.min) << field.name;
        EXPECT_LE(costs.*field.value, field.max) << field.name;
    }
    EXPECT_EQ(costs_of(object_of(costs)), costs);
    EXPECT_EQ(topology(), topology());
}

TEST(Machine, without_time_the_defaults_stay_and_are_known_to_be_missing) {
    Measurement measured = measure(Deadline::after(std::chrono::seconds(0)));
    const CostModel usual;
    measured.costs.cores = usual.cores;
    measured.costs.cache_kb = usual.cache_kb;
    EXPECT_EQ(measured.costs, usual);
    EXPECT_EQ(std::popcount(measured.missing), static_cast<int>(algorithm::cost_fields().size()) - 2);
    EXPECT_FALSE(measured.settled());
    for (std::uint32_t turn = 1; turn < Measurement::most_attempts; ++turn)
        measured = measure(Deadline::after(std::chrono::seconds(0)), measured);
    EXPECT_TRUE(measured.settled()) << "a machine that is always busy is not measured for ever";
}

// Programs often start while the machine is busy starting them. The next one measures a number that was missed then.
TEST(Machine, what_is_missing_is_measured_and_what_is_known_stays) {
    const auto bit_of = [](std::string_view name) {
        const auto fields = algorithm::cost_fields();
        return std::uint32_t{1} << (std::ranges::find(fields, name, &algorithm::CostField::name) - fields.begin());
    };
    Measurement known = some_costs();
    known.missing = bit_of("yield_us") | bit_of("memory_copy_gbps");
    const Measurement measured = measure(Deadline::after(std::chrono::seconds(10)), known);
    EXPECT_EQ(measured.missing, 0U);
    EXPECT_EQ(measured.attempts, known.attempts + 1);
    for (const auto& field : algorithm::cost_fields()) {
        const bool was_missing = (known.missing & bit_of(field.name)) != 0;
        EXPECT_EQ(measured.costs.*field.value != known.costs.*field.value, was_missing) << field.name;
    }
}

TEST(Machine, that_is_busy_is_known_to_be) {
    // More threads that want to run than there are cores: four for each, so that this one waits most of the time.
    std::atomic<bool> stop{false};
    std::list<std::jthread> others;
    const auto end = [&](int*) {
        stop = true;
        others.clear();
    };
    int any = 0;
    const std::unique_ptr<int, decltype(end)> ends(&any, end);
    for (unsigned i = 0; i < 4 * std::max(1U, std::thread::hardware_concurrency()); ++i)
        others.emplace_back([&stop] {
            while (!stop) {
            }
        });
    if (!std::ifstream("/proc/thread-self/schedstat")) GTEST_SKIP() << "this system does not say who waits for a core";
    const Measurement measured = measure(Deadline::after(std::chrono::seconds(2)));
    EXPECT_TRUE(measured.circumstances.busy()) << measured.circumstances.to_string();
    EXPECT_FALSE(measured.outdated(measured.circumstances.when)) << "not at once: it may still be busy";
    EXPECT_TRUE(measured.outdated(measured.circumstances.when + Measurement::busy_for_s));
    EXPECT_TRUE(measured.outdated(measured.circumstances.when - 1)) << "the clock was set back";
}

TEST(Machine, that_was_quiet_is_not_measured_again) {
    const Measurement quiet{.missing = 0,
                            .circumstances = {.load = 3, .stolen = 0.01, .waited = 0.02, .spread = 0.1, .when = 1}};
    EXPECT_FALSE(quiet.circumstances.busy()) << "load alone is the job that was there before";
    EXPECT_FALSE(quiet.outdated(1'900'000'000));
    for (double Circumstances::*member : {&Circumstances::stolen, &Circumstances::waited, &Circumstances::spread}) {
        Circumstances one = quiet.circumstances;
        one.*member = 0.6;
        EXPECT_TRUE(one.busy());
    }
}

TEST(Offer, measures_again_what_was_measured_on_a_busy_machine) {
    const Folder folder;
    const std::string before = std::getenv("XDG_CACHE_HOME") == nullptr ? "" : std::getenv("XDG_CACHE_HOME");
    ::setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
    Measurement busy = some_costs();
    busy.missing = 0;
    busy.circumstances = {.waited = 0.99, .spread = 9, .when = 1'700'000'000};
    ASSERT_TRUE(Cache(topology()).save(busy));
    // A process keeps its findings: another one asks.
    const pid_t child = ::fork();
    if (child == 0) ::_exit(offer({}, true, {}).empty() ? 1 : 0);
    int status = 1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    const auto now = Cache(topology()).load();
    if (before.empty())
        ::unsetenv("XDG_CACHE_HOME");
    else
        ::setenv("XDG_CACHE_HOME", before.c_str(), 1);
    ASSERT_TRUE(now.has_value());
    EXPECT_GT(now->circumstances.when, 1'700'000'000);
}

TEST(Offer, a_far_store_makes_messages_take_longer_and_a_near_one_changes_nothing) {
    const auto numbers = [](std::chrono::microseconds round_trip) {
        return costs_of(object::decode_string(offer({}, true, round_trip))).value();
    };
    const CostModel here = numbers({});
    EXPECT_EQ(numbers(net::far_round_trip - std::chrono::microseconds(1)), here);
    CostModel far = numbers(std::chrono::milliseconds(40));
    EXPECT_DOUBLE_EQ(far.tcp_us, 20'000 + here.tcp_send_us + here.tcp_receive_us);
    far.tcp_us = here.tcp_us;
    EXPECT_EQ(far, here);
}

TEST(Setting, is_read_from_a_list) {
    const Folder folder;
    EXPECT_EQ(parse_setting("", Files::read).numbers, Setting::Numbers::cached);
    EXPECT_EQ(parse_setting("auto", Files::read).numbers, Setting::Numbers::cached);
    EXPECT_EQ(parse_setting("off", Files::read).numbers, Setting::Numbers::none);
    EXPECT_EQ(parse_setting("nocache", Files::read).numbers, Setting::Numbers::uncached);
    EXPECT_EQ(parse_setting("remeasure", Files::read).numbers, Setting::Numbers::remeasured);
    const Setting mixed = parse_setting("off,all_reduce:64K=ring,barrier=dissemination", Files::read);
    EXPECT_EQ(mixed.numbers, Setting::Numbers::none);
    EXPECT_EQ(mixed.rules, (std::vector<Rule>{{Collective::all_reduce, "ring", 65536, algorithm::any_ranks},
                                              {Collective::barrier, "dissemination"}}));
}

TEST(Setting, a_printed_table_can_be_read_back) {
    const Folder folder;
    const std::string file = folder.path() + "/table";
    std::ofstream(file) << "# a comment\n\n" << algorithm::describe_table();
    const Setting setting = parse_setting(file, Files::read);
    EXPECT_GT(setting.rules.size(), 25U);
    EXPECT_EQ(setting.rules[2], (Rule{Collective::all_reduce, "one_shot", 8192, algorithm::any_ranks}));
    const algorithm::Tuning tuning = decided(decide(setting, "", {}));
    EXPECT_EQ(tuning.rules, setting.rules);
}

TEST(Setting, bad_values_are_refused_in_a_sentence) {
    const Folder folder;
    const std::string file = folder.path() + "/table";
    std::ofstream(file) << "all_reduce ring 64K any\nall_reduce rign any any\n";
    const std::pair<std::string, std::string> cases[] = {
        {"of", "\"of\": expected auto, off, nocache, remeasure"},
        {"all_reduce=rign", "\"rign\": expected an algorithm for all_reduce: slots, in_place"},
        {"allreduce=ring", "\"allreduce\": expected a collective: all_reduce"},
        {"all_reduce:64X=ring", "\"64X\": expected a size in bytes"},
        {"all_reduce:=ring", "\"\": expected a size in bytes"},
        {"all_reduce:99999999999G=ring", "expected a size in bytes"},
        {"/no/such/file", "\"/no/such/file\": expected a file that can be read"},
        {"/dev/zero", "holds a table: it cannot be read: it is a device"},
        {file, "line 2: \"rign\": expected an algorithm for all_reduce"},
    };
    for (const auto& [value, words] : cases) {
        const std::string sentence = refusal([&value] { parse_setting(value, Files::read); });
        EXPECT_NE(sentence.find("TUTTI_TUNE"), std::string::npos) << value << ": " << sentence;
        EXPECT_NE(sentence.find(words), std::string::npos) << value << ": " << sentence;
    }
    EXPECT_EQ(refusal([] { parse_setting("/no/such/file", Files::ignored); }), "");
}

std::string offered(const CostModel& costs) {
    return object::encode_string(object_of(costs));
}

TEST(Decision, takes_the_slowest_numbers_and_ignores_nonsense) {
    CostModel quick, slow;
    quick.tcp_us = 5;
    quick.cache_copy_gbps = 20;
    slow.tcp_us = 50;
    slow.cache_copy_gbps = 30;
    const auto tuning =
        decided(decide({}, "ring", {offered(quick), "", std::string(3000, '['), offered(slow), "nonsense"}));
    ASSERT_TRUE(tuning.costs.has_value());
    EXPECT_EQ(tuning.costs->tcp_us, 50);
    EXPECT_EQ(tuning.costs->cache_copy_gbps, 20);
    EXPECT_EQ(tuning.named, "ring");
    EXPECT_EQ(decided(decide({}, "", {"", ""})).costs, std::nullopt);
    EXPECT_EQ(decided(decide({.numbers = Setting::Numbers::none}, "", {offered(quick)})).costs, std::nullopt);
    EXPECT_THROW(decided("nonsense"), InternalError);
}

}  // namespace
}  // namespace tutti::tune
