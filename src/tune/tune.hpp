// Tune: makes the tuning that chooses algorithms, equal on all ranks, from the environment and the machine.
//
// A rank offers the measured costs of its host ("numbers" below) when it joins; rank 0 makes the group's tuning from
// these offers and from its own TUTTI_TUNE, TUTTI_SCHEDULE and TUTTI_ALGORITHM, and all ranks use it. Threads: any.
#pragma once

#include "algorithm/tuning.hpp"
#include "algorithm/user_schedule.hpp"

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::tune {

/// TUTTI_TUNE, a list: off | nocache | remeasure | COLLECTIVE[:BYTES]=ALGORITHM | a file with a table (its name has a
/// slash), separated by commas.
struct Setting {
    enum class Numbers {
        cached,      ///< measured once for each host
        remeasured,  ///< measured now, and kept
        uncached,    ///< measured now, without the user's cache directory
        none,        ///< off: the table's limits choose
    };
    Numbers numbers = Numbers::cached;
    std::vector<algorithm::Rule> rules;
    std::vector<algorithm::UserSchedule> schedules{};  ///< from the files that TUTTI_SCHEDULE names
};
enum class Files { read, ignored };
/// Throws InvalidArgument that names the variable, the value and what is expected; also for a file that cannot be read
/// or is not a table. Files::ignored does not read files (for ranks whose setting does not count).
Setting parse_setting(std::string_view text, Files files);
/// As above, from the environment, with the schedules of the files in TUTTI_SCHEDULE, a list separated by commas. Also
/// throws for a schedule file that cannot be read, and as UserSchedule::proved.
Setting setting_from_environment(Files files);

/// The numbers of this host, encoded for rank 0; empty if there are none. They come from the cache; otherwise one
/// process of the host measures them, and rank 0 always does. Measures once in a process; later calls return the same.
/// `round_trip`: to the server of the store, which is usually on rank 0's host (StoreBackend::round_trip). Where it is
/// far, messages over TCP, which are measured inside the host, count as being as long under way (tcp_us).
std::string offer(const Setting& setting, bool rank_0, std::chrono::microseconds round_trip);

/// The names of the numbers that offer() could not measure, for which defaults are used: the machine was too busy (the
/// next starts try again), or lacks the feature.
std::vector<std::string_view> still_missing();

/// Whether other processes used the cores while offer()'s numbers were measured: they are then too slow, and later
/// starts measure again.
bool measured_while_busy();

/// Rank 0: the tuning of a group, encoded for all ranks. `named`: TUTTI_ALGORITHM. If hosts' numbers differ, the
/// slowest count; invalid offers are ignored.
std::string decide(const Setting& setting, const std::string& named, const std::vector<std::string>& offers);

/// Reads the text that decide() wrote. Throws InternalError for anything else.
algorithm::Tuning decided(const std::string& decision);

}  // namespace tutti::tune
