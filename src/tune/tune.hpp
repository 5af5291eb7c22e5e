// Tune: from the environment and the machine to the tuning that chooses algorithms, equal on all ranks.
//
// A rank offers the numbers of its host when it joins; rank 0 makes the tuning of the group from these and from its own
// TUTTI_TUNE, TUTTI_SCHEDULE and TUTTI_ALGORITHM, and all ranks use it. Threads: any.
#pragma once

#include "algorithm/tuning.hpp"
#include "algorithm/user_schedule.hpp"

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
        uncached,    ///< measured now, the user's cache directory is left alone
        none,        ///< off: the table's limits choose
    };
    Numbers numbers = Numbers::cached;
    std::vector<algorithm::Rule> rules;
    std::vector<algorithm::UserSchedule> schedules{};  ///< of the files that TUTTI_SCHEDULE names
};
enum class Files { read, ignored };
/// Throws InvalidArgument that names the variable, the value and what is expected; also for a file that cannot be read
/// or holds something else than a table, unless files are ignored (ranks whose setting does not count).
Setting parse_setting(std::string_view text, Files files);
/// With the schedules of the files in TUTTI_SCHEDULE, a list separated by commas. Throws as well for a file that cannot
/// be read, and as UserSchedule::proved.
Setting setting_from_environment(Files files);

/// The numbers of this host, for rank 0; empty when there are none. They come from the cache; else one process
/// of the host measures, rank 0 for certain. Once in a process; later calls return the same.
std::string offer(const Setting& setting, bool rank_0);

/// The names of those numbers that offer() could not measure: the machine was too busy (the next starts try again), or
/// has no such thing. Defaults stand in for them.
std::vector<std::string_view> still_missing();

/// Whether others had the cores when those numbers were measured: they are worse than the machine, and later starts
/// measure them again.
bool measured_while_busy();

/// Rank 0: the tuning of a group, encoded for everyone. `named`: TUTTI_ALGORITHM. Of several hosts' numbers the slowest
/// count; offers that are no numbers are left out.
std::string decide(const Setting& setting, const std::string& named, const std::vector<std::string>& offers);

/// Reads the text that decide() wrote. Throws InternalError for anything else.
algorithm::Tuning decided(const std::string& decision);

}  // namespace tutti::tune
