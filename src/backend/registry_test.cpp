#include "backend/registry.hpp"

#include "support/covers.hpp"
#include "support/message_of.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace tutti {
namespace {

using test::covers;
using test::message_of;
using Type = Device::Type;

class Idle : public CustomBackend {
 public:
    void run(const BackendRequest&, BackendCompletion) override {}
    void abort(const std::string&) noexcept override {}
};

TEST(Names, of_backends_are_checked_and_lower_case) {
    covers("S2-010", "S2-011", "S2-012", "S2-007");
    EXPECT_EQ(Backend("GLOO").name(), "gloo");
    EXPECT_EQ(Backend("native"), Backend::NATIVE);
    EXPECT_EQ(Backend::attribute("XCCL"), Backend::XCCL);
    EXPECT_EQ(Backend::UNDEFINED, "undefined");
    const std::string as_text = Backend::UCC;
    EXPECT_EQ(as_text, "ucc");
    EXPECT_NE(message_of<InvalidArgument>([] { Backend("pigeon"); }).find("\"pigeon\": expected one of native, gloo"),
              std::string::npos);
    EXPECT_THROW(Backend(""), InvalidArgument);
    EXPECT_THROW(Backend("undefined"), InvalidArgument);
    EXPECT_THROW(Backend("../x"), InvalidArgument);
    EXPECT_THROW((void)Backend::attribute("gloo"), InvalidArgument);
}

TEST(Names, that_are_registered_are_backends_with_both_forms_of_constructors) {
    covers("S2-013", "S12-001", "S12-003", "S12-004", "S12-007", "A-62");
    EXPECT_FALSE(is_backend_available("mine"));
    int made = 0;
    Backend::register_backend("Mine", [&](const Store&, int rank, int size, std::chrono::milliseconds timeout) {
        made = 100 * rank + 10 * size + static_cast<int>(timeout.count());
        return std::make_shared<Idle>();
    });
    std::string told;
    Backend::register_backend("other",
                              [&](const DistributedBackendOptions& o, const std::any& options) {
                                  told = o.group_id + "," + std::any_cast<std::string>(options);
                                  return std::make_shared<Idle>();
                              },
                              {Type::cuda});
    EXPECT_TRUE(is_backend_available("MINE"));
    EXPECT_EQ(Backend::attribute("MINE"), "mine");
    EXPECT_EQ(Backend("Other"), "other");
    EXPECT_EQ(backend::parse("mine", {}, "f"), (backend::Devices{{Type::cpu, "mine"}, {Type::cuda, "mine"}}));
    EXPECT_EQ(backend::parse("other", {}, "f"), (backend::Devices{{Type::cuda, "other"}}));
    EXPECT_TRUE(backend::make("mine", {.group_rank = 1, .group_size = 2, .timeout = std::chrono::milliseconds(3)}, {}));
    EXPECT_EQ(made, 123);
    EXPECT_TRUE(backend::make("other", {.group_id = "g"}, std::string("fast")));
    EXPECT_EQ(told, "g,fast");
    EXPECT_THROW(Backend::register_backend("mine", Backend::Plain([](auto...) { return nullptr; })), InvalidArgument);
    EXPECT_THROW(Backend::register_backend("native", Backend::Plain([](auto...) { return nullptr; })), InvalidArgument);
    EXPECT_THROW(Backend::register_backend("a b", Backend::Plain([](auto...) { return nullptr; })), InvalidArgument);
    EXPECT_THROW(Backend::register_backend("empty", Backend::Plain()), InvalidArgument);
    EXPECT_THROW(Backend::register_backend("none", Backend::Plain([](auto...) { return nullptr; }), {}),
                 InvalidArgument);
}

TEST(Names, of_torch_that_are_not_here_say_where_they_would_come_from) {
    covers("S1-023", "S1-035", "S1-036", "S1-037", "S1-038");
    EXPECT_FALSE(is_mpi_available());
    EXPECT_FALSE(is_nccl_available());
    EXPECT_FALSE(is_gloo_available());
    EXPECT_FALSE(is_ucc_available());
    EXPECT_FALSE(is_xccl_available());
    const std::string text = message_of<DistBackendError>([] { backend::parse("gloo", {}, "init_process_group"); });
    EXPECT_NE(text.find("init_process_group: backend \"gloo\" is not here"), std::string::npos) << text;
    EXPECT_NE(text.find("libtutti-backend-gloo.so"), std::string::npos) << text;
}

TEST(Maps, from_devices_to_backends_are_read_and_checked) {
    covers("S1-009", "S1-008", "S1-010", "S2-016", "S2-020");
    Backend::register_backend("cards", Backend::Plain([](auto...) { return std::make_shared<Idle>(); }), {Type::cuda});
    const Device card{Type::cuda, 0};
    EXPECT_EQ(backend::parse("", {}, "f"), (backend::Devices{{Type::cpu, "native"}}));
    EXPECT_EQ(backend::parse("", Device{}, "f"), (backend::Devices{{Type::cpu, "native"}}));
    EXPECT_EQ(backend::parse("", card, "f").at(Type::cpu), "native");
    EXPECT_TRUE(backend::parse("", card, "f").contains(Type::cuda)) << "whoever serves it";
    EXPECT_EQ(backend::parse("CPU:Native,cuda:cards", {}, "f"),
              (backend::Devices{{Type::cpu, "native"}, {Type::cuda, "cards"}}));
    EXPECT_EQ(backend::parse("cpu:native", {}, "f"), (backend::Devices{{Type::cpu, "native"}}));
    Backend::register_backend("others", Backend::Plain([](auto...) { return std::make_shared<Idle>(); }),
                              {Type::rocm, Type::npu, Type::xpu});
    EXPECT_EQ(backend::parse("rocm:others,xpu:others", {}, "f"),
              (backend::Devices{{Type::rocm, "others"}, {Type::xpu, "others"}}));
    EXPECT_EQ(backend::parse("", Device{Type::npu, 1}, "f").at(Type::npu), "others");
    for (const char* bad : {":", "cpu:", "cpu", "tpu:native", "cpu:native,cpu:native", "cpu:native;cuda:cards",
                            "cpu:cards", "cuda:native", "cpu:pigeon", "rocm:cards", "cuda:others"}) {
        EXPECT_THROW(backend::parse(bad, {}, "f"), InvalidArgument) << bad;
    }
}

TEST(Combining, is_what_native_groups_do) {
    const std::array<float, 2> a{1, 2}, b{3, 5};
    std::array<float, 2> out{};
    const void* inputs[] = {a.data(), b.data()};
    combine(ReduceOp::avg, DType::float32, out.data(), inputs, 2);
    EXPECT_EQ(out, (std::array<float, 2>{2, 3.5}));
    combine(ReduceOp::max, DType::float32, out.data(), inputs, 2);
    EXPECT_EQ(out, (std::array<float, 2>{3, 5}));
    EXPECT_THROW(combine(ReduceOp::band, DType::float32, out.data(), inputs, 2), InvalidArgument);
    EXPECT_THROW(combine(ReduceOp::sum, DType::float32, out.data(), {}, 2), InvalidArgument);
}

}  // namespace
}  // namespace tutti
