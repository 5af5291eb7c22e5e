// Object collectives: torch.distributed's functions for lists of objects, and the same for C++ types.
//
// All block. They copy the objects that they send: received tensors share no memory with sent ones (though several
// tensors of one message may share a buffer). Short objects take one exchange, longer ones two; there is no limit on
// the size of an object.
// Received bytes are never executed: for bytes that are no valid object, and for objects of another type than the
// requested one, the rank that reads them throws ObjectError, and the group stays usable.
// Common to all:
//   - `group`, `src`/`dst`, `group_src`/`group_dst`, `timeout` and the errors as in distributed.hpp. `timeout` is for
//     the whole call.
//   - `device`: a kind that the group serves, or cpu; InvalidArgument for others. The bytes travel in host memory
//     whatever its value, also in a group that serves only devices.
// Follows torch.distributed; for each function that fills the caller's list there is also a form that returns one.
#pragma once

#include <tutti/distributed.hpp>
#include <tutti/object.hpp>
#include <tutti/object_stream.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

using ObjectList = std::vector<Object>;

struct SendObjectOptions {
    std::optional<int> dst{};  ///< exactly one of dst and group_dst; not this rank
    ProcessGroup group{};
    std::optional<Device> device{};
    std::optional<int> group_dst{};
    milliseconds timeout{0};
};
struct RecvObjectOptions {
    std::optional<int> src{};  ///< neither src nor group_src: from any rank
    ProcessGroup group{};
    std::optional<Device> device{};
    std::optional<int> group_src{};
    milliseconds timeout{0};
};
struct BroadcastObjectOptions {
    std::optional<int> src{};  ///< exactly one of src and group_src
    ProcessGroup group{};
    std::optional<Device> device{};
    std::optional<int> group_src{};
    milliseconds timeout{0};
};

// ---- torch.distributed's six --------------------------------------------------------------------------------------

/// Sends a list; the receiver's list must have the same length, or both get CollectiveMismatch.
TUTTI_API void send_object_list(const ObjectList& object_list, const SendObjectOptions& options);
/// Receives into a list of the sender's length; returns the sender's rank.
TUTTI_API int recv_object_list(ObjectList& object_list, const RecvObjectOptions& options = {});
/// Copies the root's list to every rank; the lists must have equal lengths, or all ranks get CollectiveMismatch.
TUTTI_API void broadcast_object_list(ObjectList& object_list, const BroadcastObjectOptions& options);
/// object_list[i] becomes rank i's object; object_list has size() entries.
TUTTI_API void all_gather_object(ObjectList& object_list, const Object& object, const CollectiveOptions& options = {});
/// As all_gather_object, on the root only; elsewhere object_gather_list must be null.
TUTTI_API void gather_object(const Object& object, ObjectList* object_gather_list, const GatherOptions& options = {});
/// The first entry of the output list, which must not be empty, becomes entry number `rank` of the root's input list,
/// where `rank` is this rank in the group. Other ranks' input lists are ignored.
TUTTI_API void scatter_object_list(ObjectList& scatter_object_output_list, const ObjectList& scatter_object_input_list,
                                   const ScatterOptions& options = {});

// ---- The same for lists that are encoded already, for bindings ----------------------------------------------------

namespace detail {
/// `list` is one list of `objects` values. The group must contain this rank.
TUTTI_API void send_encoded(const EncodedObject& list, std::size_t objects, const SendObjectOptions& options);
/// Returns the sender's global rank.
TUTTI_API int recv_encoded(EncodedObject& list, std::size_t objects, const RecvObjectOptions& options);
/// On the root `list` is what it sends; elsewhere it becomes that.
TUTTI_API void broadcast_encoded(EncodedObject& list, std::size_t objects, const BroadcastObjectOptions& options);
/// Each rank's list has one value. `places`: of the list for the results.
TUTTI_API std::vector<EncodedObject> all_gather_encoded(const EncodedObject& mine, std::size_t places,
                                                        const CollectiveOptions& options);
/// `places`: none where no list for the results was given.
TUTTI_API std::vector<EncodedObject> gather_encoded(const EncodedObject& mine, std::optional<std::size_t> places,
                                                    const GatherOptions& options);
TUTTI_API EncodedObject scatter_encoded(const std::vector<EncodedObject>& lists, std::size_t places,
                                        const ScatterOptions& options);
}  // namespace detail

// ---- The same for C++ types ---------------------------------------------------------------------------------------

namespace detail {
TUTTI_API ObjectList all_gathered(const Object& object, const CollectiveOptions& options);
TUTTI_API ObjectList gathered(const Object& object, const GatherOptions& options);
TUTTI_API Object scattered(const ObjectList& objects, const ScatterOptions& options);
[[noreturn]] TUTTI_API void rethrow_for(const char* operation, const ObjectError& error);

template <class T>
struct StoredAs {
    using type = T;
};
template <>
struct StoredAs<const char*> {
    using type = std::string;
};
template <>
struct StoredAs<char*> {
    using type = std::string;
};
template <>
struct StoredAs<std::string_view> {
    using type = std::string;
};
/// The type in which a value of type T is read back: text as std::string.
template <class T>
using Stored = typename StoredAs<std::decay_t<T>>::type;

template <class T>
T take(const char* operation, const Object& object) {
    try {
        return object.get<T>();
    } catch (const ObjectError& error) {
        rethrow_for(operation, error);
    }
}
template <class T>
std::vector<T> take_list(const char* operation, ObjectList list) {
    if constexpr (std::same_as<T, Object>) {
        return list;
    } else {
        std::vector<T> values;
        values.reserve(list.size());
        for (std::size_t i = 0; i < list.size(); ++i) {
            try {
                values.push_back(list[i].get<T>());
            } catch (const ObjectError& error) {
                rethrow_for(operation, error.inside(index_step(i)));
            }
        }
        return values;
    }
}
}  // namespace detail

/// Returns every rank's value, by rank: std::vector<Shard> all = all_gather_object(Shard{"part-3", 128});
template <class T>
requires detail::ObjectValue<T> std::vector<detail::Stored<T>> all_gather_object(
    const T& value, const CollectiveOptions& options = {}) {
    return detail::take_list<detail::Stored<T>>("all_gather_object", detail::all_gathered(Object(value), options));
}
/// Returns every rank's value on the root, by rank; an empty list on other ranks.
template <class T>
requires detail::ObjectValue<T> std::vector<detail::Stored<T>> gather_object(const T& value,
                                                                             const GatherOptions& options = {}) {
    return detail::take_list<detail::Stored<T>>("gather_object", detail::gathered(Object(value), options));
}
/// Returns the root's value, on every rank.
template <class T>
requires detail::ObjectValue<T> detail::Stored<T> broadcast_object(const T& value,
                                                                   const BroadcastObjectOptions& options) {
    ObjectList list;
    list.emplace_back(value);
    broadcast_object_list(list, options);
    return detail::take<detail::Stored<T>>("broadcast_object", list[0]);
}
/// Returns entry number `rank` of the root's list, where `rank` is this rank in the group; other ranks' lists are
/// ignored.
template <class T>
requires detail::ObjectValue<T> T scatter_object(const std::vector<T>& values, const ScatterOptions& options = {}) {
    ObjectList list;
    list.reserve(values.size());
    for (const auto& value : values) list.emplace_back(value);
    return detail::take<T>("scatter_object", detail::scattered(list, options));
}
template <class T>
requires detail::ObjectValue<T>
void send_object(const T& value, const SendObjectOptions& options) {
    ObjectList list;
    list.emplace_back(value);
    send_object_list(list, options);
}
template <class T>
requires detail::ObjectValue<T>
struct Received {
    T value;
    int source = -1;  ///< global rank
};
template <class T>
requires detail::ObjectValue<T> Received<T> recv_object(const RecvObjectOptions& options = {}) {
    ObjectList list(1);
    const int source = recv_object_list(list, options);
    return {detail::take<T>("recv_object", list[0]), source};
}

}  // namespace tutti
