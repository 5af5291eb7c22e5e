// Calls on a world that has failed before: each error names its own call, and the cause.
#include "faults/job.hpp"
#include "faults/leftovers.hpp"

#include <tutti/coalescing.hpp>
#include <tutti/graph.hpp>
#include <tutti/object_collectives.hpp>
#include <tutti/plan.hpp>
#include <tutti/quantized.hpp>
#include <tutti/window.hpp>

#include <functional>
#include <vector>

namespace tutti::test {
namespace {

class FailedWorld : public LeftoverCheck, public ::testing::WithParamInterface<TransportKind> {};
INSTANTIATE_TEST_SUITE_P(Over, FailedWorld, ::testing::Values(TransportKind::shm, TransportKind::tcp),
                         [](const auto& instance) { return to_string(instance.param); });

/// What a rank has made while all was well, and the calls that it makes afterwards.
class Calls {
 public:
    explicit Calls(const ProcessGroup& world)
        : world_(world), part_(world.split({})), window_(float32, {1000}, {.group = world}) {}

    struct Call {
        const char* name;  // that the error says
        std::function<void()> make;
    };
    std::vector<Call> all() {
        return {
            {"all_reduce", [this] { all_reduce(few_, {.group = world_}); }},
            {"all_reduce", [this] { all_reduce(many_, {.group = world_}); }},
            {"all_reduce", [this] { (void)async::all_reduce(few_, {.group = world_}); }},
            {"all_reduce",
             [this] {
                 all_reduce_coalesced({few_, many_}, {.group = world_});
             }},
            {"all_reduce", [this] { planned_.run(); }},
            {"all_reduce", [this] { (void)planned_.start(); }},
            {"all_reduce", [this] { replayed_.replay(); }},
            {"broadcast", [this] { broadcast(few_, {.src = 0, .group = world_}); }},
            {"barrier", [this] { barrier({.group = world_}); }},
            {"barrier", [this] { barrier({.group = part_}); }},
            {"monitored_barrier", [this] { monitored_barrier({.group = world_}); }},
            {"quantized_all_reduce", [this] { quantized_all_reduce(many_, {.group = world_}); }},
            {"send", [this] { send(few_, 1, {.group = world_}); }},
            {"send", [this] { send(many_, 1, {.group = world_}); }},
            {"send", [this] { (void)isend(few_, 1, {.group = world_}); }},
            {"send", [this] { planned_send_.run(); }},
            {"send", [this] { (void)batch_isend_irecv({isend_op(few_, 1, {.group = world_})}); }},
            {"recv", [this] { recv(few_, {.group = world_}); }},
            {"recv", [this] { (void)irecv(few_, {.src = 1, .group = world_}); }},
            {"all_gather_object", [this] { (void)all_gather_object(7, {.group = world_}); }},
            {"send_object_list", [this] { send_object_list({Object(7)}, {.dst = 1, .group = world_}); }},
            {"Window.put", [this] { window_.put(many_, 1); }},
            {"Window.get", [this] { window_.get(many_, 1); }},
            {"Window.signal", [this] { window_.signal(1, 0, 1); }},
            {"Window.fence", [this] { window_.fence(); }},
        };
    }
    const std::string& part() const { return part_.name(); }

 private:
    ProcessGroup world_, part_;
    std::vector<float> few_ = std::vector<float>(4), many_ = std::vector<float>(1000);
    Plan planned_ = plan::all_reduce(few_, {.group = world_});
    Plan planned_send_ = plan::send(few_, 1 - world_.rank(), {.group = world_});
    graph::Executable replayed_{graph::capture([this] { all_reduce(few_, {.group = world_}); })};
    Window window_;
};

/// "" where all is as it should be.
std::string fault_of(const Calls::Call& call, const std::string& part) {
    const std::string name = call.name;
    try {
        call.make();
        return name + " went well";
    } catch (const DistError& error) {
        const std::string text = error.what();
        const auto begins = [&](const std::string& group) {
            return text.starts_with(name + " in group \"" + group + "\" (2 ranks) cannot start: ");
        };
        const bool good = (begins("world") || begins(part)) && text.find("rank 1 (") != std::string::npos &&
                          text.find("is gone") != std::string::npos && error.code() == ErrorCode::peer_lost &&
                          error.context().peer == 1 && error.context().operation == name;
        return good ? "" : name + " of " + error.context().operation + ": " + text;
    }
}

TEST_P(FailedWorld, errors_name_the_call_that_cannot_start_and_the_cause) {
    Job job(2, [](const RankProcess& me) {
        const ProcessGroup world = me.join(GetParam());
        Calls calls(world);
        barrier({.group = world});
        if (me.rank() == 1) ::raise(SIGKILL);
        me.report_end_of([&] { barrier({.group = world}); });
        for (const Calls::Call& call : calls.all()) me.report(fault_of(call, calls.part()));
    });
    const auto first = job.next();
    ASSERT_TRUE(first);
    EXPECT_EQ(first->code, static_cast<int>(ErrorCode::peer_lost)) << first->text;
    const auto reports = job.collect(25);
    ASSERT_EQ(reports.size(), 25U);
    for (const Report& report : reports) EXPECT_STREQ(report.text, "");
}

TEST_P(FailedWorld, errors_after_a_group_was_destroyed_name_the_call) {
    Job job(2, [](const RankProcess& me) {
        ProcessGroup world = me.join(GetParam()), part = world.split({});
        std::vector<float> x(4);
        part.destroy();
        me.report_end_of([&] { all_reduce(x, {.group = part}); });
        barrier({.group = world});
        world.destroy();
        me.report_end_of([&] { barrier({.group = world}); });
    });
    int calls = 0;
    for (const Report& report : job.collect(4)) {
        EXPECT_EQ(report.code, static_cast<int>(ErrorCode::aborted)) << report.text;
        const std::string text = report.text;
        calls += text.starts_with("all_reduce in group ") || text.starts_with("barrier in group \"world\"");
        EXPECT_NE(text.find("(2 ranks) cannot start: group "), std::string::npos) << text;
        EXPECT_TRUE(text.ends_with(" was destroyed")) << text;
    }
    EXPECT_EQ(calls, 4);
}

}  // namespace
}  // namespace tutti::test
