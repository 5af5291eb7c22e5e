// DistributedDataParallel: what becomes of gradients, parameters and buffers. ddp_errors_test.cpp has what goes wrong,
// ddp_logs_test.cpp what is logged.
#include "conformance/ddp_model.hpp"
#include "support/covers.hpp"

#include <algorithm>
#include <complex>

namespace tutti::test {
namespace {

class Ddp : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Ddp, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

using Indices = std::vector<std::vector<std::size_t>>;

TEST_P(Ddp, gradients_become_averages_in_whatever_order_they_are_ready) {
    covers("S23-001");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        Model model(g.rank());
        DistributedDataParallel ddp(model.parameters(), {.group = g, .bucket_cap_bytes = 64});
        for (int iteration = 0; iteration < 4; ++iteration) {
            model.compute_gradients(g.rank(), iteration);
            ddp.forward();
            ddp.prepare_for_backward();
            for (std::size_t k = 0; k < Model::size; ++k)
                ddp.ready((k * 3 + static_cast<std::size_t>(g.rank() + iteration)) % Model::size);
            ddp.finish();
            EXPECT_EQ(model.gradients, averages(g.size(), iteration)) << iteration;
        }
    });
}

TEST_P(Ddp, all_ranks_begin_with_the_parameters_and_buffers_of_rank_0) {
    covers("S23-001");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        Model model(g.rank());
        std::vector<float> mean(5, static_cast<float>(g.rank() + 1));
        std::int64_t batches = g.rank() + 7;
        const std::vector<NamedBuffer> buffers{{"mean", mean}, {"batches", TensorView(&batches, {}, int64)}};
        DistributedDataParallel ddp(model.parameters(), {.group = g, .buffers = buffers});
        EXPECT_EQ(model.values, Model(0).values);
        EXPECT_EQ(mean, std::vector<float>(5, 1));
        EXPECT_EQ(batches, 7);
        // And have rank 0's buffers again in each iteration.
        mean.assign(5, static_cast<float>(g.rank() + 20));
        batches = g.rank();
        ddp.forward();
        EXPECT_EQ(mean, std::vector<float>(5, 20));
        EXPECT_EQ(batches, 0);
        EXPECT_EQ(model.values, Model(0).values);

        DistributedDataParallel alone(model.parameters(), {.group = g, .buffers = buffers, .broadcast_buffers = false});
        mean.assign(5, static_cast<float>(g.rank() + 20));
        alone.forward();
        EXPECT_EQ(mean, std::vector<float>(5, static_cast<float>(g.rank() + 20)));
    });
}

TEST_P(Ddp, a_bucket_is_on_its_way_while_other_gradients_are_computed) {
    covers("S23-001", "S23-004");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        Model model(g.rank());
        model.compute_gradients(g.rank(), 0);
        DistributedDataParallel ddp(model.parameters(), {.group = g, .bucket_cap_bytes = 0});
        std::vector<Future<TensorList>> sent;
        ddp.register_comm_hook({}, [&](const ProcessGroup& group, GradBucket& bucket) {
            EXPECT_EQ(bucket.index(), sent.size());
            EXPECT_EQ(bucket.is_last(), sent.size() == Model::size - 1);
            TensorView buffer = bucket.buffer().view();
            sent.push_back(async::all_reduce(buffer, {.op = ReduceOp::avg, .group = group}).get_future());
            return sent.back();
        });
        ddp.forward();
        ddp.ready(Model::size - 2);
        EXPECT_TRUE(sent.empty()) << "bucket 1 before bucket 0";
        ddp.ready(Model::size - 1);
        ASSERT_EQ(sent.size(), 2U);
        // They arrive before any other gradient is ready, on all ranks.
        for (const auto& bucket : sent) (void)bucket.wait();
        for (std::size_t i = Model::size - 2; i-- > 0;) ddp.ready(i);
        ddp.finish();
        EXPECT_EQ(model.gradients, averages(g.size(), 0));
    });
}

TEST_P(Ddp, buckets_follow_the_order_of_rank_0_after_the_first_iteration) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        for (const bool views : {false, true}) {
            std::vector<float> a(4), b(4), c(4), own(12);
            std::vector<NamedParameter> parameters{{"a", a}, {"b", b}, {"c", c}};
            if (!views) {
                for (std::size_t i = 0; i < 3; ++i) parameters[i].gradient = std::span(own).subspan(4 * i, 4);
            }
            DistributedDataParallel ddp(parameters,
                                        {.group = g, .bucket_cap_bytes = 32, .gradient_as_bucket_view = views});
            EXPECT_EQ(ddp.buckets(), (Indices{{2, 1}, {0}}));
            const auto fill = [&](std::size_t i, float value) {
                const TensorView gradient = ddp.gradient(i);
                std::fill_n(static_cast<float*>(gradient.data()), 4, value);
            };
            const auto value = [&](std::size_t i) { return *static_cast<float*>(ddp.gradient(i).data()); };
            for (int iteration = 0; iteration < 3; ++iteration) {
                if (iteration == 1) fill(2, 77);
                ddp.forward();
                EXPECT_EQ(ddp.buckets(), iteration == 0 ? (Indices{{2, 1}, {0}}) : (Indices{{1, 0}, {2}}));
                // What had been added up is still there.
                EXPECT_TRUE(iteration != 1 || value(2) == 77);
                for (std::size_t k = 0; k < 3; ++k) {
                    const std::size_t i = g.rank() == 0 ? std::array{1, 0, 2}[k] : k;
                    fill(i, static_cast<float>(10 * i) + static_cast<float>(g.rank()));
                    ddp.ready(i);
                }
                ddp.finish();
                for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(value(i), static_cast<float>(10 * i) + 1) << i;
            }
        }
    });
}

TEST_P(Ddp, no_sync_adds_up_what_the_next_iteration_averages) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        for (const bool views : {false, true}) {
            const auto me = static_cast<float>(g.rank());
            std::vector<float> a(3), own(3), mean{me};
            std::vector<NamedParameter> parameters{{"a", a, TensorView(own)}};
            if (views) parameters[0].gradient.reset();
            DistributedDataParallel ddp(parameters, {.group = g,
                                                     .buffers = {{"mean", mean}},
                                                     .find_unused_parameters = true,
                                                     .gradient_as_bucket_view = views});
            const auto gradient = [&] { return std::span(static_cast<float*>(ddp.gradient("a").data()), 3); };
            for (int round = 0; round < 2; ++round) {
                std::ranges::fill(gradient(), 0.0F);
                mean[0] = me;
                {
                    const auto scope = ddp.no_sync();
                    // Ranks need not agree in how often.
                    for (int pass = 0; pass <= g.rank(); ++pass) {
                        ddp.forward();
                        for (float& x : gradient()) x += 1 + 2 * me;
                        ddp.ready(0);
                        ddp.finish();
                    }
                }
                EXPECT_EQ(gradient()[0], g.rank() == 0 ? 1 : 6);
                EXPECT_EQ(mean[0], me);
                ddp.forward();
                EXPECT_EQ(mean[0], 0);
                // Without a further gradient on rank 0: what it has added up counts.
                if (g.rank() == 1) {
                    for (float& x : gradient()) x += 1;
                    ddp.ready("a");
                }
                ddp.finish();
                EXPECT_EQ(gradient()[1], 4) << views;
            }
        }
    });
}

TEST_P(Ddp, parameters_that_are_unused_count_as_zeros_or_stay_as_they_are) {
    covers("S23-002");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        for (const bool views : {false, true}) {
            std::vector<float> a(2), b(2), c(2), da{9, 9}, db{9, 9}, dc{9, 9};
            std::vector<NamedParameter> parameters{
                {"a", a, TensorView(da)}, {"b", b, TensorView(db)}, {"c", c, TensorView(dc)}};
            if (views) {
                for (NamedParameter& p : parameters) p.gradient.reset();
            }
            DistributedDataParallel ddp(parameters,
                                        {.group = g, .find_unused_parameters = true, .gradient_as_bucket_view = views});
            const auto gradient = [&](std::size_t i) {
                return std::span(static_cast<float*>(ddp.gradient(i).data()), 2);
            };
            for (const bool told_before : {false, true}) {
                for (std::size_t i = 0; i < 3; ++i) std::ranges::fill(gradient(i), 9.0F);
                ddp.forward();
                // Nobody uses a, rank 1 alone uses b.
                std::vector<std::size_t> unused{0};
                if (g.rank() == 0) unused.push_back(1);
                ddp.prepare_for_backward(told_before ? unused : std::vector<std::size_t>{});
                std::ranges::fill(gradient(2), static_cast<float>(2 + 2 * g.rank()));
                ddp.ready("c");
                if (g.rank() == 1) {
                    std::ranges::fill(gradient(1), 5.0F);
                    ddp.ready("b");
                }
                ddp.finish();
                EXPECT_EQ(gradient(0)[1], 9) << "used nowhere";
                EXPECT_EQ(gradient(1)[1], 2.5F) << "used by rank 1";
                EXPECT_EQ(gradient(2)[1], 3) << "used by both";
            }
        }
    });
}

// The example of the documentation: buffer.div_(group size), then the future of its asynchronous all_reduce.
TEST_P(Ddp, a_hook_does_what_all_reduce_does_otherwise) {
    covers("S23-004", "S23-005", "E-229", "S7-009");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        Model model(g.rank());
        DistributedDataParallel ddp(model.parameters(), {.group = g, .bucket_cap_bytes = 64});
        std::vector<std::size_t> seen;
        std::vector<float> flat;
        const auto all_reduce = [&](const ProcessGroup& process_group, GradBucket& bucket) {
            const ProcessGroup group_to_use = process_group ? process_group : default_group();
            EXPECT_EQ(group_to_use, g);
            seen.push_back(bucket.index());
            flat.insert(flat.end(), bucket.buffer().span<float>().begin(), bucket.buffer().span<float>().end());
            EXPECT_EQ(bucket.parameters().size(), bucket.gradients().size());
            for (std::size_t i = 0; i < bucket.parameters().size(); ++i)
                EXPECT_EQ(bucket.parameters()[i].shape(), bucket.gradients()[i].shape());
            EXPECT_EQ(bucket.gradients().front().data(), bucket.buffer().raw_data());
            EXPECT_EQ(bucket.is_last(), bucket.index() + 1 == ddp.buckets().size());
            for (float& x : bucket.buffer().span<float>()) x /= static_cast<float>(group_to_use.size());
            TensorView tensor = bucket.buffer().view();
            return async::all_reduce(tensor, {.group = group_to_use}).get_future();
        };
        ddp.register_comm_hook({}, all_reduce);
        model.compute_gradients(g.rank(), 0);
        const auto mine = model.gradients;
        ddp.forward();
        for (std::size_t i = Model::size; i-- > 0;) ddp.ready(i);
        ddp.finish();
        EXPECT_EQ(model.gradients, averages(g.size(), 0));
        // Buckets in order, each with its gradients one after the other, as this rank has computed them.
        const Indices buckets = ddp.buckets();
        ASSERT_EQ(seen.size(), buckets.size());
        std::vector<float> expected;
        for (std::size_t k = 0; k < buckets.size(); ++k) {
            EXPECT_EQ(seen[k], k);
            for (const std::size_t i : buckets[k]) expected.insert(expected.end(), mine[i].begin(), mine[i].end());
        }
        EXPECT_EQ(flat, expected);
    });
}

TEST_P(Ddp, a_hook_may_make_a_tensor_of_its_own_on_a_group_of_its_own) {
    covers("S23-004");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<float> a(6), da(6, static_cast<float>(g.rank() + 1));
        DistributedDataParallel ddp({{"a", a, TensorView(da)}}, {.group = g});
        const ProcessGroup state = g.split({.color = 0, .group_desc = "of the hook"});
        // Gradients travel as bfloat16.
        ddp.register_comm_hook(state, [&](const ProcessGroup& group, GradBucket& bucket) {
            EXPECT_EQ(group, state);
            Tensor small = empty(bfloat16, bucket.buffer().shape());
            std::ranges::transform(bucket.buffer().span<float>(), small.data<BFloat16>(),
                                   [](float x) { return BFloat16(x); });
            return async::all_reduce(small, {.group = group}).get_future().then([small](const auto& done) {
                (void)done.value();
                Tensor wide = empty(float32, small.shape());
                std::ranges::transform(small.span<BFloat16>(), wide.data<float>(),
                                       [](BFloat16 x) { return float(x) / 2; });
                return wide;
            });
        });
        for (int iteration = 0; iteration < 2; ++iteration) {
            da.assign(6, static_cast<float>(g.rank() + 1));
            ddp.forward();
            ddp.ready(0);
            ddp.finish();
            EXPECT_EQ(da, std::vector<float>(6, 1.5F));
        }
    });
}

TEST_P(Ddp, gradients_can_be_views_of_their_buckets) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<float> a(4), b(2);
        DistributedDataParallel ddp({{"a", view(a.data(), {2, 2})}, {"b", b}},
                                    {.group = g, .gradient_as_bucket_view = true});
        ddp.forward();
        const TensorView da = ddp.gradient("a"), db = ddp.gradient("b");
        EXPECT_EQ(da.to_string(), "float32[2, 2]");
        EXPECT_EQ(static_cast<float*>(db.data()) + 2, da.data()) << "one bucket, b first";
        std::fill_n(static_cast<float*>(da.data()), 4, static_cast<float>(g.rank()));
        ddp.ready("a");
        // What is elsewhere is copied.
        std::vector<float> elsewhere(2, static_cast<float>(4 * g.rank()));
        ddp.ready("b", elsewhere);
        ddp.finish();
        EXPECT_EQ(static_cast<float*>(da.data())[3], 0.5F);
        EXPECT_EQ(static_cast<float*>(db.data())[1], 2);
        EXPECT_EQ(elsewhere[0], static_cast<float>(4 * g.rank()));
    });
}

TEST_P(Ddp, gradients_may_be_somewhere_else_each_time_and_have_strides) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<float> a(4), b(4), columns(8, -1);
        // The gradient of b is every other column of a matrix.
        DistributedDataParallel ddp(
            {{"a", view(a.data(), {2, 2})},
             {"b", view(b.data(), {2, 2}), TensorView(columns.data(), {2, 2}, float32, {4, 2})}},
            {.group = g});
        for (int iteration = 0; iteration < 2; ++iteration) {
            std::vector<float> fresh(4, static_cast<float>(g.rank() + iteration));
            for (const std::size_t k : {0, 2, 4, 6}) columns[k] = static_cast<float>(k) + static_cast<float>(g.rank());
            ddp.forward();
            ddp.ready("b");
            ddp.ready("a", view(fresh.data(), {2, 2}));
            ddp.finish();
            EXPECT_EQ(fresh, std::vector<float>(4, 0.5F + static_cast<float>(iteration)));
            EXPECT_EQ(columns, (std::vector<float>{0.5F, -1, 2.5F, -1, 4.5F, -1, 6.5F, -1}));
        }
    });
}

// Each value is the exact average, rounded once: low precision adds up in float32.
template <class T>
void averages_of(const ProcessGroup& g) {
    std::vector<T> a(5), da(5);
    std::vector<float> b(2), db(2, static_cast<float>(g.rank()));
    for (std::size_t k = 0; k < 5; ++k) da[k] = T(static_cast<float>(256 * g.rank() + 1 + static_cast<int>(k)));
    const std::vector<T> mine = da;
    DistributedDataParallel ddp({{"a", a, TensorView(da)}, {"b", b, TensorView(db)}}, {.group = g});
    EXPECT_EQ(ddp.buckets(), dtype_of<T> == float32 ? (Indices{{1, 0}}) : (Indices{{1}, {0}}));
    ddp.forward();
    ddp.ready(0);
    ddp.ready(1);
    ddp.finish();
    for (std::size_t k = 0; k < 5; ++k) {
        const auto of = [&](int rank) { return T(static_cast<float>(256 * rank + 1 + static_cast<int>(k))); };
        if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)
            EXPECT_EQ(da[k], T((float(of(0)) + float(of(1))) / 2)) << to_string(dtype_of<T>) << ' ' << k;
        else
            EXPECT_EQ(da[k], (of(0) + of(1)) / T(2)) << to_string(dtype_of<T>) << ' ' << k;
    }
    EXPECT_EQ(db[1], 0.5F);
}

TEST_P(Ddp, every_dtype_has_buckets_of_its_own) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        averages_of<BFloat16>(g);
        averages_of<Float16>(g);
        averages_of<float>(g);
        averages_of<double>(g);
        averages_of<std::complex<float>>(g);
    });
}

TEST_P(Ddp, a_forward_pass_alone_and_an_object_that_goes_early_hurt_nobody) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        Model model(g.rank());
        auto ddp =
            std::make_unique<DistributedDataParallel>(model.parameters(), DistributedDataParallelOptions{.group = g});
        for (int pass = 0; pass < 3; ++pass) ddp->forward();
        model.compute_gradients(g.rank(), 0);
        for (std::size_t i = 0; i < Model::size; ++i) ddp->ready(i);
        // Its buckets are on their way: the other rank gets its averages.
        if (g.rank() == 0) {
            ddp.reset();
        } else {
            ddp->finish();
            EXPECT_EQ(model.gradients, averages(g.size(), 0));
        }
        barrier({.group = g});
    });
}

TEST(DdpBuckets, are_of_25_MiB_and_the_first_of_1_MiB) {
    const HashStore store;
    const ProcessGroup g({.store = store, .rank = 0, .world_size = 1});
    constexpr std::int64_t mib = 1 << 18;  // in float32
    std::vector<Tensor> tensors;
    std::vector<NamedParameter> parameters;
    for (const std::int64_t size : {5, 3, 12, 12, 1}) {
        Tensor& tensor = tensors.emplace_back(empty(float32, {size * mib}));
        parameters.push_back({std::to_string(parameters.size()), tensor});
    }
    const DistributedDataParallel ddp(parameters, {.group = g});
    // 1; 12 + 12 + 3, which is more than 25 for the first time; 5.
    EXPECT_EQ(ddp.buckets(), (Indices{{4}, {3, 2, 1}, {0}}));
    const DistributedDataParallel small(parameters, {.group = g, .bucket_cap_bytes = 12 << 20});
    EXPECT_EQ(small.buckets(), (Indices{{4}, {3}, {2}, {1, 0}}));
    EXPECT_EQ(small.group(), g);
}

// Model's gradients are whole numbers: a scale of 1 keeps them, so that averages are exact but for the second rounding.
TEST_P(Ddp, gradients_are_averaged_by_a_quantised_hook) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const auto distance = [&](CommHook hook, int iterations) {
            Model model(g.rank());
            DistributedDataParallel ddp(model.parameters(), {.group = g, .bucket_cap_bytes = 64});
            ddp.register_comm_hook({}, std::move(hook));
            double worst = 0;
            std::vector<std::vector<double>> sums(Model::size);
            for (int iteration = 0; iteration < iterations; ++iteration) {
                model.compute_gradients(g.rank(), 1);
                ddp.forward();
                for (std::size_t i = 0; i < Model::size; ++i) ddp.ready(i);
                ddp.finish();
                for (std::size_t i = 0; i < Model::size; ++i) {
                    sums[i].resize(Model::counts[i]);
                    for (std::size_t k = 0; k < Model::counts[i]; ++k)
                        sums[i][k] += static_cast<double>(model.gradients[i][k]);
                }
            }
            const Lists exact = averages(g.size(), 1);
            for (std::size_t i = 0; i < Model::size; ++i) {
                for (std::size_t k = 0; k < Model::counts[i]; ++k)
                    worst = std::max(worst, std::abs(sums[i][k] / iterations - static_cast<double>(exact[i][k])));
            }
            return worst;
        };
        const double largest = 6.0 * 2 * 46;  // of the averages
        EXPECT_LT(distance(quantized_comm_hook(), 1), largest * 1.5 / 127);
        const QuantizedOptions four{.type = QuantizedType::int4};
        const double without = distance(quantized_comm_hook(four, ErrorFeedback::off), 40);
        EXPECT_GT(without, 1);
        EXPECT_LT(distance(quantized_comm_hook(four), 40), without / 4);
    });
}

}  // namespace
}  // namespace tutti::test
