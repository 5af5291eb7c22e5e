// Json: a JSON text that people write, and errors that lead to the place: each value knows its file and its pointer
// (RFC 6901). Numbers may be written as numbers or as strings of digits, as rank tables have them.
//
// Threads: values.
#pragma once

#include <tutti/atb.hpp>

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::atb {

class Json {
 public:
    /// `source`: the name of the text in messages ("rank table /etc/table.json"). Throws Error (ERROR_INVALID_PARAM)
    /// that says where the text stops being JSON.
    Json(std::string source, std::string_view text);

    /// "/server_list/0/device/1"; of the text itself "/".
    std::string pointer() const { return pointer_.empty() ? "/" : pointer_; }
    /// "rank table /etc/table.json, /server_list/0: ".
    std::string where() const;

    bool is_null() const;
    bool is_object() const;
    /// A member of an object; nothing: it has none, or null.
    std::optional<Json> find(const char* key) const;
    /// The first of these that is there.
    std::optional<Json> find(std::initializer_list<const char*> keys) const;
    /// The same; Error that names it where there is none.
    Json at(const char* key) const;
    Json at(std::initializer_list<const char*> keys) const;
    std::vector<std::string> keys() const;
    /// The values of an array; Error for anything else.
    std::vector<Json> list() const;
    /// The same, where an empty one makes no sense.
    std::vector<Json> filled_list() const;
    /// A string, or a number as it is written: 1.0.
    std::string text() const;
    /// An integer, or a string of one, from `least` to `most`; Error that names the range.
    std::int64_t integer(std::int64_t least, std::int64_t most) const;
    /// As the text has it, on one line, shortened.
    std::string shown() const;

    /// Throws Error (ERROR_INVALID_PARAM): where(), and the sentence.
    [[noreturn]] void fail(std::string_view sentence) const;

 private:
    struct Root;
    Json(std::shared_ptr<const Root> root, const nlohmann::json& value, std::string pointer);

    std::shared_ptr<const Root> root_;
    const nlohmann::json* value_;
    std::string pointer_;
};

/// Whether the text only lacks its end, as a file does that is being written.
bool ends_early(std::string_view text);

}  // namespace tutti::atb
