// The flight recorder for Python: dictionaries with PyTorch's keys.
#include "recorder_module.hpp"
#include "recorder.hpp"

#include <c10/core/ScalarType.h>

namespace tutti::torch {
namespace {

py::list sizes_of(const std::vector<Recorder::Shape>& shapes) {
    py::list all;
    for (const Recorder::Shape& shape : shapes) all.append(py::cast(shape.sizes));
    return all;
}
py::list dtypes_of(const std::vector<Recorder::Shape>& shapes) {
    py::list all;
    for (const Recorder::Shape& shape : shapes) all.append(c10::toString(shape.dtype));
    return all;
}

py::dict dict_of(const Recorder::Entry& entry) {
    py::dict dict;
    dict["record_id"] = entry.id;
    dict["pg_id"] = entry.group;
    dict["process_group"] = py::make_tuple(entry.group_name.first, entry.group_name.second);
    dict["thread_name"] = entry.thread_name;
    dict["thread_id"] = std::to_string(entry.thread_id);
    dict["collective_seq_id"] = entry.sequence;
    dict["p2p_seq_id"] = entry.message_sequence;
    dict["rank"] = entry.rank;
    dict["peer"] = entry.peer;
    dict["number"] = entry.number;
    dict["input_split_sizes"] = entry.splits.input;
    dict["output_split_sizes"] = entry.splits.output;
    dict["op_id"] = entry.is_message ? entry.message_sequence : entry.sequence;
    dict["profiling_name"] = entry.title;
    dict["time_created_ns"] = entry.created_ns;
    dict["input_sizes"] = sizes_of(entry.inputs);
    dict["input_dtypes"] = dtypes_of(entry.inputs);
    dict["output_sizes"] = sizes_of(entry.outputs);
    dict["output_dtypes"] = dtypes_of(entry.outputs);
    const bool completed = entry.completed_ns != 0;
    dict["state"] = completed ? "completed" : "started";
    dict["time_discovered_started_ns"] = entry.created_ns;
    dict["time_discovered_completed_ns"] = completed ? py::object(py::int_(entry.completed_ns)) : py::none();
    if (completed) dict["duration_ms"] = static_cast<double>(entry.completed_ns - entry.created_ns) / 1e6;
    dict["retired"] = entry.over;
    dict["timeout_ms"] = entry.timeout.count();
    dict["is_p2p"] = entry.is_message;
    return dict;
}

py::list frames_of(const std::vector<std::uint64_t>& traceback, const std::vector<::torch::unwind::Frame>& all) {
    py::list frames;
    for (const std::uint64_t index : traceback) {
        const ::torch::unwind::Frame& frame = all[index];
        py::dict dict;
        dict["name"] = frame.funcname;
        dict["filename"] = frame.filename;
        dict["line"] = frame.lineno;
        frames.append(dict);
    }
    return frames;
}

py::list entries(bool stacks, bool only_active) {
    std::vector<Recorder::Entry> found;
    ::torch::SymbolizedTracebacks symbols;
    {
        const py::gil_scoped_release release;
        found = Recorder::get().entries();
        if (only_active) std::erase_if(found, [](const Recorder::Entry& entry) { return entry.completed_ns != 0; });
        if (stacks) {
            std::vector<::torch::CapturedTraceback*> tracebacks;
            for (const Recorder::Entry& entry : found) tracebacks.push_back(entry.traceback.get());
            symbols = ::torch::symbolize(tracebacks);
        }
    }
    py::list all;
    for (std::size_t i = 0; i < found.size(); ++i) {
        py::dict dict = dict_of(found[i]);
        if (stacks) dict["frames"] = frames_of(symbols.tracebacks[i], symbols.all_frames);
        all.append(std::move(dict));
    }
    return all;
}

py::list groups() {
    py::list all;
    for (const auto& [number, group] : Recorder::get().groups()) {
        py::dict dict;
        dict["pg_id"] = number;
        dict["name"] = group.name.first;
        dict["desc"] = group.name.second;
        dict["ranks"] = group.ranks;
        dict["last_enqueued_collective"] = group.last_enqueued;
        dict["last_completed_collective"] = group.last_completed;
        all.append(std::move(dict));
    }
    return all;
}

}  // namespace

void bind_recorder(py::module_& module) {
    module.def("recording", &Recorder::is_on);
    module.def("recorded_entries", &entries, py::arg("stacks"), py::arg("only_active"));
    module.def("recorded_groups", &groups);
}

}  // namespace tutti::torch
