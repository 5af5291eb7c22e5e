// A step as a file of JSON: docs/scale.md has its form.
#include "cli/simulate_step.hpp"
#include "command/arguments.hpp"
#include "command/requests.hpp"
#include "core/suggestion.hpp"
#include "core/text.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

namespace tutti::cli {
namespace {

using Json = nlohmann::json;

constexpr int nesting_max = 8;

class JsonReader {
 public:
    explicit JsonReader(StepWriter& writer) : writer_(writer) {}

    void read(const Json& json) {
        object(json, "", {"groups", "pieces"});
        groups_["all"] = {writer_.ranks(), 1};
        if (json.contains("groups")) read_groups(json["groups"]);
        if (!json.contains("pieces")) writer_.refuse("", "\"pieces\", a list of objects");
        collect_names(json["pieces"]);
        read_pieces(json["pieces"], "pieces", 0);
    }

 private:
    struct Dimension {
        int size = 1, stride = 1;
    };

    [[noreturn]] void refuse(const std::string& field, const Json& value, const std::string& expected) const {
        writer_.refuse(fmt::format("{} {}", field, visible_line(value.dump(-1, ' ', true).substr(0, 100))), expected);
    }

    void object(const Json& json, const std::string& field, const std::vector<std::string_view>& known) const {
        if (!json.is_object()) refuse(field.empty() ? "the file" : field, json, "an object");
        for (const auto& [name, value] : json.items()) {
            if (std::ranges::find(known, name) == known.end())
                writer_.refuse(fmt::format("{}\"{}\"", field.empty() ? "" : field + ": ", visible_line(name)),
                               fmt::format("one of {}{}", fmt::join(known, ", "), did_you_mean(name, known)));
        }
    }

    double number(const Json& json, const char* name, const std::string& field, double otherwise, double least,
                  double most) const {
        if (!json.contains(name)) return otherwise;
        const Json& value = json[name];
        if (!value.is_number() || value.get<double>() < least || value.get<double>() > most)
            refuse(fmt::format("{}.{}", field, name), value, fmt::format("a number from {:g} to {:g}", least, most));
        return value.get<double>();
    }
    int whole(const Json& json, const char* name, const std::string& field, int otherwise, int least, int most) const {
        if (json.contains(name) && !json[name].is_number_integer())
            refuse(fmt::format("{}.{}", field, name), json[name],
                   fmt::format("a whole number from {} to {}", least, most));
        return static_cast<int>(number(json, name, field, otherwise, least, most));
    }
    std::string word(const Json& json, const char* name, const std::string& field, const std::string& otherwise) const {
        if (!json.contains(name)) return otherwise;
        if (!json[name].is_string() || json[name].get<std::string>().empty())
            refuse(fmt::format("{}.{}", field, name), json[name], "a text");
        return json[name].get<std::string>();
    }

    void read_groups(const Json& json) {
        if (!json.is_object())
            refuse("groups", json, "an object, such as {\"tp\": {\"size\": 8}, \"dp\": {\"stride\": 8}}");
        for (const auto& [name, value] : json.items()) {
            const std::string field = "groups." + visible_line(name);
            object(value, field, {"size", "stride"});
            const int ranks = writer_.ranks(), stride = whole(value, "stride", field, 1, 1, ranks);
            const int size = whole(value, "size", field, std::max(1, ranks / stride), 1, ranks);
            if (ranks % (std::int64_t{size} * stride) != 0)
                refuse(
                    field, value,
                    fmt::format("size times stride, {}, to divide {} (--ranks)", std::int64_t{size} * stride, ranks));
            groups_[name] = {size, stride};
        }
    }

    // Also of pieces that come later: in a list that is repeated, a piece may name those of the pass before.
    void collect_names(const Json& json) {
        if (json.is_object() && json.contains("name") && json["name"].is_string())
            names_.insert(json["name"].get<std::string>());
        else if (json.is_object() && json.contains("call") && json["call"].is_string())
            names_.insert(json["call"].get<std::string>());
        if (!json.is_structured()) return;
        for (const Json& part : json) collect_names(part);
    }

    void read_pieces(const Json& json, const std::string& field, int depth) {
        if (!json.is_array()) refuse(field, json, "a list of objects");
        for (std::size_t i = 0; i < json.size(); ++i) read_piece(json[i], fmt::format("{}[{}]", field, i), depth);
    }

    void read_piece(const Json& json, const std::string& field, int depth) {
        if (json.is_object() && json.contains("pieces")) {
            object(json, field, {"times", "pieces"});
            if (depth == nesting_max) writer_.refuse(field, fmt::format("at most {} levels of lists", nesting_max));
            const int times = whole(json, "times", field, 1, 1, 100000);
            for (int i = 0; i < times; ++i) read_pieces(json["pieces"], field + ".pieces", depth + 1);
            return;
        }
        const bool calls = json.is_object() && json.contains("call");
        if (calls)
            object(json, field, {"name", "call", "bytes", "dtype", "group", "root", "after"});
        else
            object(json, field, {"name", "us", "after"});
        if (!calls && !json.contains("us"))
            writer_.refuse(field, "\"us\", of a piece of computing, \"call\", of a collective, or \"pieces\"");
        const std::string name = word(json, "name", field, calls ? word(json, "call", field, "") : "compute");
        const std::vector<std::uint32_t> after = json.contains("after") ? read_after(json["after"], field, depth)
                                                 : calls && computed_   ? std::vector{*computed_}
                                                                        : std::vector<std::uint32_t>{};
        std::uint32_t number = 0;
        if (calls) {
            number = writer_.add_call(name, read_call(json, field), after);
        } else {
            constexpr double us_max = 1e12;
            number = writer_.add_compute(name, this->number(json, "us", field, 0, 0, us_max), after);
            computed_ = number;
        }
        named_[name].push_back(number);
    }

    StepWriter::Collective read_call(const Json& json, const std::string& field) {
        StepWriter::Collective c;
        c.call = word(json, "call", field, "");
        const auto known = command::planned_collectives();
        if (std::ranges::find(known, c.call) == known.end())
            refuse(field + ".call", json["call"],
                   fmt::format("one of {}{}", fmt::join(known, ", "), did_you_mean(c.call, known)));
        const std::string dtype = word(json, "dtype", field, "float32");
        const auto types = command::dtype_names();
        if (std::ranges::find(types, dtype) == types.end())
            refuse(field + ".dtype", json["dtype"],
                   fmt::format("one of {}{}", fmt::join(types, ", "), did_you_mean(dtype, types)));
        c.dtype = dtype_from_string(dtype);
        if (json.contains("bytes"))
            c.bytes = read_bytes(json["bytes"], field + ".bytes");
        else if (c.call != "barrier")
            writer_.refuse(field, "\"bytes\", of the whole buffer, such as \"25M\"");
        const std::string group = word(json, "group", field, "all");
        const auto found = groups_.find(group);
        if (found == groups_.end()) {
            std::vector<std::string> names;
            for (const auto& [known_name, dimension] : groups_) names.push_back(known_name);
            refuse(field + ".group", json["group"],
                   fmt::format("one of {} (\"groups\"){}", fmt::join(names, ", "), did_you_mean(group, names)));
        }
        c.group = writer_.group(group, found->second.size, found->second.stride);
        c.root = whole(json, "root", field, 0, 0, found->second.size - 1);
        return c;
    }

    std::uint64_t read_bytes(const Json& json, const std::string& field) const {
        try {
            if (json.is_number_unsigned()) return json.get<std::uint64_t>();
            if (json.is_string()) return command::bytes_of(json.get<std::string>(), field);
        } catch (const CLI::Error&) {  // as below
        }
        refuse(field, json, "a size, such as 65536, \"64K\" or \"25M\"");
    }

    // "name": the latest piece before that has this name; "name~2": two before that.
    std::vector<std::uint32_t> read_after(const Json& json, const std::string& field, int depth) const {
        if (!json.is_array()) refuse(field + ".after", json, "a list of names");
        std::vector<std::uint32_t> after;
        for (const Json& value : json) {
            if (!value.is_string()) refuse(field + ".after", value, "a name");
            std::string name = value.get<std::string>();
            std::size_t back = 0;
            if (const std::size_t mark = name.rfind('~'); mark != std::string::npos && !names_.contains(name)) {
                const auto steps = number_in<std::size_t>(std::string_view(name).substr(mark + 1));
                if (!steps) refuse(field + ".after", value, "NAME, or NAME~1 for the one before");
                back = *steps;
                name.resize(mark);
            }
            const auto found = named_.find(name);
            const std::size_t before = found == named_.end() ? 0 : found->second.size();
            if (!names_.contains(name) || (depth == 0 && before == 0))
                refuse(field + ".after", value,
                       fmt::format("the name of a piece before it{}", did_you_mean(name, names_)));
            // In the first passes there is nothing yet to wait for.
            if (back < before) after.push_back(found->second[before - 1 - back]);
        }
        return after;
    }

    StepWriter& writer_;
    std::map<std::string, Dimension> groups_;
    std::set<std::string> names_;
    std::map<std::string, std::vector<std::uint32_t>> named_;
    std::optional<std::uint32_t> computed_;  // the last piece of computing
};

}  // namespace

void read_json_step(const std::string& text, StepWriter& writer) {
    Json json;
    try {
        json = Json::parse(text);
    } catch (const Json::exception& error) {
        writer.refuse("", fmt::format("JSON: {}", visible_line(error.what())));
    }
    JsonReader(writer).read(json);
}

}  // namespace tutti::cli
