#include "atb/json.hpp"

#include "core/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace tutti::atb {

using Value = nlohmann::json;

struct Json::Root {
    std::string source;
    Value value;
};

namespace {

constexpr std::size_t shown_characters = 60;

std::string one_line(const Value& value) {
    std::string text = value.dump(-1, ' ', false, Value::error_handler_t::replace);
    if (text.size() > shown_characters) text = text.substr(0, shown_characters - 3) + "...";
    return text;
}

// RFC 6901.
std::string escaped(std::string_view key) {
    std::string text;
    for (const char c : key) {
        if (c == '~') {
            text += "~0";
        } else if (c == '/') {
            text += "~1";
        } else {
            text += c;
        }
    }
    return text;
}

// "line 3, column 7", from the number of a byte, from 1.
std::string place_of(std::string_view text, std::size_t byte) {
    const std::string_view before = text.substr(0, byte > 0 ? byte - 1 : 0);
    const auto lines = std::ranges::count(before, '\n');
    const std::size_t begin = before.rfind('\n');
    return fmt::format("line {}, column {}", lines + 1,
                       before.size() - (begin == std::string_view::npos ? 0 : begin + 1) + 1);
}

Value parsed(const std::string& source, std::string_view text) {
    try {
        return Value::parse(text.begin(), text.end());
    } catch (const Value::parse_error& error) {
        const Value without = Value::parse(text.begin(), text.end(), nullptr, false, true);
        const char* cause = without.is_discarded() ? "it is no JSON text"
                                                   : "comments are not JSON; remove them: those in documents' examples "
                                                     "are for their readers";
        throw Error(ERROR_INVALID_PARAM, fmt::format("{}: {} ({})", source, cause,
                                                     text.empty() ? "it is empty" : place_of(text, error.byte)));
    } catch (const Value::out_of_range&) {
        throw Error(ERROR_INVALID_PARAM,
                    fmt::format("{}: a number in it is out of range: expected one below 1e308", source));
    }
}

}  // namespace

Json::Json(std::string source, std::string_view text) {
    Value value = parsed(source, text);
    root_ = std::make_shared<const Root>(Root{std::move(source), std::move(value)});
    value_ = &root_->value;
}

Json::Json(std::shared_ptr<const Root> root, const Value& value, std::string pointer)
    : root_(std::move(root)), value_(&value), pointer_(std::move(pointer)) {}

std::string Json::where() const {
    return pointer_.empty() ? root_->source + ": " : fmt::format("{}, {}: ", root_->source, pointer_);
}

void Json::fail(std::string_view sentence) const {
    throw Error(ERROR_INVALID_PARAM, where() + std::string(sentence));
}

bool Json::is_null() const {
    return value_->is_null();
}

bool Json::is_object() const {
    return value_->is_object();
}

std::optional<Json> Json::find(const char* key) const {
    if (!value_->is_object()) fail(fmt::format("{}: expected an object with \"{}\"", shown(), key));
    const auto found = value_->find(key);
    if (found == value_->end() || found->is_null()) return std::nullopt;
    return Json(root_, *found, pointer_ + '/' + escaped(key));
}

std::optional<Json> Json::find(std::initializer_list<const char*> keys) const {
    for (const char* key : keys) {
        if (auto found = find(key)) return found;
    }
    return std::nullopt;
}

Json Json::at(const char* key) const {
    return at({key});
}

Json Json::at(std::initializer_list<const char*> keys) const {
    if (auto found = find(keys)) return *std::move(found);
    fail(fmt::format("there is no \"{}\"", fmt::join(keys, "\" or \"")));
}

std::vector<std::string> Json::keys() const {
    if (!value_->is_object()) fail(fmt::format("{}: expected an object", shown()));
    std::vector<std::string> keys;
    for (const auto& item : value_->items()) keys.push_back(item.key());
    return keys;
}

std::vector<Json> Json::list() const {
    if (!value_->is_array()) fail(fmt::format("{}: expected an array", shown()));
    std::vector<Json> values;
    for (std::size_t i = 0; i < value_->size(); ++i)
        values.push_back(Json(root_, (*value_)[i], fmt::format("{}/{}", pointer_, i)));
    return values;
}

std::vector<Json> Json::filled_list() const {
    std::vector<Json> values = list();
    if (values.empty()) fail("it is empty: expected one entry or more");
    return values;
}

std::string Json::text() const {
    if (value_->is_string()) return value_->get<std::string>();
    if (value_->is_number()) return value_->dump();
    fail(fmt::format("{}: expected a string", shown()));
}

std::int64_t Json::integer(std::int64_t least, std::int64_t most) const {
    std::optional<std::int64_t> number;
    if (value_->is_number_integer() || value_->is_string()) number = number_in<std::int64_t>(text());
    if (number && *number >= least && *number <= most) return *number;
    const bool no_limit = most == INT64_MAX;
    fail(fmt::format("{}: expected an integer {}", shown(),
                     no_limit ? fmt::format("of {} or more", least) : fmt::format("from {} to {}", least, most)));
}

std::string Json::shown() const {
    return one_line(*value_);
}

bool ends_early(std::string_view text) {
    try {
        [[maybe_unused]] const Value whole = Value::parse(text.begin(), text.end());
        return false;
    } catch (const Value::parse_error& error) {
        return error.byte > text.size() || text.empty();
    } catch (const Value::out_of_range&) {  // a number that is too large
        return false;
    }
}

}  // namespace tutti::atb
