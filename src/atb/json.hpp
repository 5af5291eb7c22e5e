// Json: a JSON text written by people, with errors that say where: each value knows its source and its JSON pointer
// (RFC 6901). Numbers may be numbers or strings of digits, as in rank tables.
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

    /// The JSON pointer: "/server_list/0/device/1"; "/" for the whole text.
    std::string pointer() const { return pointer_.empty() ? "/" : pointer_; }
    /// "rank table /etc/table.json, /server_list/0: ".
    std::string where() const;

    bool is_null() const;
    bool is_object() const;
    /// A member of an object; nullopt: it is missing, or null.
    std::optional<Json> find(const char* key) const;
    /// The first of these members that exists.
    std::optional<Json> find(std::initializer_list<const char*> keys) const;
    /// As find(); throws Error that names the member if there is none.
    Json at(const char* key) const;
    Json at(std::initializer_list<const char*> keys) const;
    std::vector<std::string> keys() const;
    /// The values of an array; Error for anything else.
    std::vector<Json> list() const;
    /// As list(), but an empty array is an Error too.
    std::vector<Json> filled_list() const;
    /// A string, or a number as it is written: 1.0.
    std::string text() const;
    /// An integer, or a string of one, from `least` to `most`; Error that names the range.
    std::int64_t integer(std::int64_t least, std::int64_t most) const;
    /// The value as in the text, on one line, shortened.
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

/// Whether the text is JSON without its end, like a file that is still being written.
bool ends_early(std::string_view text);

}  // namespace tutti::atb
