// Cache: the measured costs of this host (the numbers of a CostModel) in a file of the user's cache directory
// ($XDG_CACHE_HOME/tutti, ~/.cache/tutti).
//
// Never an error: a file counts as absent if it cannot be read, is not this user's, can be written by others, or has
// invalid contents; a file that cannot be written is not written. Threads: any; several processes may read and write at
// once (files are replaced as a whole).
#pragma once

#include "algorithm/tuning.hpp"
#include "core/unique_fd.hpp"
#include "tune/machine.hpp"

#include <tutti/object.hpp>

#include <optional>
#include <string>

namespace tutti::tune {

/// Converts the costs to a map from their names, for files and for other ranks.
Object object_of(const algorithm::CostModel& costs);
/// nullopt unless `object` holds every number of a CostModel, within its bounds, and nothing else.
std::optional<algorithm::CostModel> costs_of(const Object& object);

class Cache {
 public:
    /// The cache of the machine that `topology` describes. `folder`: the parent of tutti's folder, which is created if
    /// missing.
    explicit Cache(const std::string& topology, const std::string& folder = user_folder());

    std::optional<Measurement> load() const;
    bool save(const Measurement& measured) const;
    /// True for one process at a time, which then measures, until this object is destroyed. False also if no file can
    /// be written.
    bool claim();
    bool usable() const noexcept { return static_cast<bool>(folder_); }
    const std::string& file_name() const noexcept { return file_; }

    /// $XDG_CACHE_HOME, else $HOME/.cache; empty when neither is an absolute path.
    static std::string user_folder();

 private:
    std::string topology_, file_;
    UniqueFd folder_;
};

}  // namespace tutti::tune
