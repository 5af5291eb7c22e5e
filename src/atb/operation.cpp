// AllToAllVV2 and OperationTorch: checks, then all_to_all_v in the domain.
#include "atb/domain.hpp"
#include "atb/inputs.hpp"
#include "atb/meeting.hpp"
#include "atb/param.hpp"

#include <tutti/atb.hpp>
#include <tutti/distributed.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <tuple>
#include <utility>

namespace tutti::atb {
namespace {

constexpr const char* operation_name = "AllToAllVV2Operation";

bool share_memory(const ConstTensorView& a, const ConstTensorView& b) {
    if (!a.contiguous() || !b.contiguous() || a.device() != b.device()) return false;  // all_to_all_v looks closer
    const auto* a_begin = static_cast<const std::byte*>(a.data());
    const auto* b_begin = static_cast<const std::byte*>(b.data());
    const std::less<const std::byte*> before;
    return before(a_begin, b_begin + b.byte_count()) && before(b_begin, a_begin + a.byte_count());
}

bool have_one_domain(const AllToAllVV2Param& a, const AllToAllVV2Param& b) {
    const auto terms = [](const AllToAllVV2Param& p) {
        return std::tie(p.rank, p.rankSize, p.rankRoot, p.commMode, p.rankTableFile, p.commDomain);
    };
    return a.hcclComm == b.hcclComm && terms(a) == terms(b);
}

void check_output(const ConstTensorView& output, const ConstTensorView& x) {
    if (output.dtype() != x.dtype()) {
        throw Error(ERROR_INVALID_TENSOR_DTYPE, fmt::format("AllToAllVV2: output is {}: expected {}, x's type",
                                                            output.to_string(), to_string(x.dtype())));
    }
    if (share_memory(output, x)) {
        throw Error(ERROR_INVALID_TENSOR_ADDR,
                    "AllToAllVV2: output shares memory with x: expected a tensor of its own");
    }
}

}  // namespace

class AllToAllVV2::Impl {
 public:
    explicit Impl(AllToAllVV2Param param) : param_(std::move(param)) {
        try {
            check(param_);
        } catch (const Error& error) {
            tell_others(param_, error);
            throw;
        }
        domain_ = Domain::of(param_);
    }

    const AllToAllVV2Param& param() const noexcept { return param_; }
    ProcessGroup group() const { return domain_->group(); }

    /// Runs a check, or a call, in a domain that works. Whatever is refused is refused on all ranks.
    template <class F>
    auto in_domain(F body) {
        if (domain_->is_over()) domain_ = Domain::of(param_);
        const std::shared_ptr<Domain> domain = domain_;
        try {
            return body(domain->group());
        } catch (const DistBackendError&) {
            domain->end();
            throw;
        } catch (const std::exception& error) {  // what cannot be, and what there is no memory for
            domain->refuse(error);
            throw;
        }
    }

    void refuse(const std::exception& error) noexcept { domain_->refuse(error); }

    static Exchange prepare(const ProcessGroup& group, const ConstTensorView& x, const AllToAllVV2Inputs& inputs,
                            std::int64_t output_elements = -1) {
        return exchange_of(group.rank(), group.size(), x.element_count(), inputs, output_elements);
    }

    static Tensor run(const ProcessGroup& group, const ConstTensorView& x, const AllToAllVV2Inputs& inputs) {
        Exchange exchange = prepare(group, x, inputs);
        Tensor output = zeros(x.dtype(), {1, exchange.output_elements});
        exchange.blocks.group = group;
        all_to_all_v(output, x, exchange.blocks);
        return output;
    }

    static void run(const ProcessGroup& group, const TensorView& output, const ConstTensorView& x,
                    const AllToAllVV2Inputs& inputs) {
        check_output(output, x);
        Exchange exchange = prepare(group, x, inputs, output.element_count());
        exchange.blocks.group = group;
        all_to_all_v(output, x, exchange.blocks);
    }

 private:
    AllToAllVV2Param param_;
    std::shared_ptr<Domain> domain_;
};

AllToAllVV2::AllToAllVV2(const AllToAllVV2Param& param) : impl_(std::make_unique<Impl>(param)) {}
AllToAllVV2::~AllToAllVV2() = default;
AllToAllVV2::AllToAllVV2(AllToAllVV2&&) noexcept = default;
AllToAllVV2& AllToAllVV2::operator=(AllToAllVV2&&) noexcept = default;

const AllToAllVV2Param& AllToAllVV2::param() const noexcept {
    return impl_->param();
}
ProcessGroup AllToAllVV2::group() const {
    return impl_->group();
}

std::int64_t AllToAllVV2::output_elements(const ConstTensorView& x, const AllToAllVV2Inputs& inputs) {
    return impl_->in_domain([&](const ProcessGroup& group) { return Impl::prepare(group, x, inputs).output_elements; });
}
Tensor AllToAllVV2::execute(const ConstTensorView& x, const AllToAllVV2Inputs& inputs) {
    return impl_->in_domain([&](const ProcessGroup& group) { return Impl::run(group, x, inputs); });
}
void AllToAllVV2::execute(const TensorView& output, const ConstTensorView& x, const AllToAllVV2Inputs& inputs) {
    impl_->in_domain([&](const ProcessGroup& group) { Impl::run(group, output, x, inputs); });
}

class OperationTorch::Impl {
 public:
    explicit Impl(std::string name) : name_(std::move(name)) {
        if (name_ != operation_name) {
            throw Error(ERROR_INVALID_PARAM,
                        fmt::format("OperationTorch: \"{}\": expected \"{}\"", name_, operation_name));
        }
    }

    const std::string& name() const noexcept { return name_; }
    // While the old one is there the new one shares its domain.
    void set(const AllToAllVV2Param& param) {
        if (operation_ && !have_one_domain(operation_->param(), param)) operation_.reset();
        operation_ = AllToAllVV2(param);
    }
    void set(AllToAllVV2Inputs inputs) { from_text_ = std::move(inputs); }

    AllToAllVV2* operation() noexcept { return operation_ ? &*operation_ : nullptr; }
    AllToAllVV2& operation(const char* method) {
        if (operation_) return *operation_;
        throw Error(
            ERROR_INVALID_PARAM,
            fmt::format("OperationTorch.{}: there are no parameters: expected a call of set_param before", method));
    }
    const AllToAllVV2& operation(const char* method) const { return const_cast<Impl*>(this)->operation(method); }
    AllToAllVV2Inputs with_text(const AllToAllVV2Inputs& given) const { return merged(from_text_, given); }

 private:
    std::string name_;
    std::optional<AllToAllVV2> operation_;
    AllToAllVV2Inputs from_text_;
};

OperationTorch::OperationTorch(const std::string& opName) : impl_(std::make_unique<Impl>(opName)) {}
OperationTorch::~OperationTorch() = default;
OperationTorch::OperationTorch(OperationTorch&&) noexcept = default;
OperationTorch& OperationTorch::operator=(OperationTorch&&) noexcept = default;

const std::string& OperationTorch::op_name() const noexcept {
    return impl_->name();
}
ProcessGroup OperationTorch::group() const {
    return std::as_const(*impl_).operation("group").group();
}
void OperationTorch::set_param(const std::string& json) {
    impl_->set(param_from_json(json));
}
void OperationTorch::set_param(const AllToAllVV2Param& param) {
    impl_->set(param);
}
void OperationTorch::set_varaintpack_param(const std::string& json) {
    impl_->set(inputs_from_json(json));
}

void OperationTorch::refuse(const std::exception& error) noexcept {
    if (AllToAllVV2* operation = impl_->operation()) operation->impl_->refuse(error);
}

std::vector<Tensor> OperationTorch::execute(const std::vector<ConstTensorView>& inTensors) {
    AllToAllVV2& operation = impl_->operation("execute");
    return {operation.impl_->in_domain([&](const ProcessGroup& group) {
        const AllToAllVV2Inputs given = inputs_from_tensors(inTensors);
        return AllToAllVV2::Impl::run(group, inTensors.front(), impl_->with_text(given));
    })};
}
std::int64_t OperationTorch::output_elements(const ConstTensorView& x, const AllToAllVV2Inputs& inputs) {
    return impl_->operation("output_elements").output_elements(x, impl_->with_text(inputs));
}
void OperationTorch::execute(const TensorView& output, const ConstTensorView& x, const AllToAllVV2Inputs& inputs) {
    impl_->operation("execute").execute(output, x, impl_->with_text(inputs));
}

}  // namespace tutti::atb
