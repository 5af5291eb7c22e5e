// The parts of a reduction operator of the caller (ReduceOp::of): its function, which combines blocks of elements.
#pragma once

#include <tutti/dtype.hpp>
#include <tutti/export.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace tutti {

/// inout[i] = in[i] op inout[i] for i < count, on elements of one size.
using OperatorFunction = void (*)(const void* in, void* inout, std::size_t count, void* context);

namespace detail {

class UserOperator;

/// What ReduceOp::of makes of a function.
struct OperatorParts {
    OperatorFunction function = nullptr;
    void* context = nullptr;
    void (*destroy)(void* context) = nullptr;  ///< called with the last copy of the operator; null: nothing to do
    std::size_t element_bytes = 0;
    std::size_t alignment = 1;    ///< of the arrays that the function gets
    DType dtype = DType::uint8;   ///< of tensors
    std::size_t block_bytes = 0;  ///< how much the function likes to get at once; 0: what fits the first-level cache
};

/// A counted reference to a UserOperator, or to none.
class TUTTI_API OperatorHandle {
 public:
    constexpr OperatorHandle() noexcept = default;
    /// One more reference.
    explicit OperatorHandle(const UserOperator* shared) noexcept : shared_(shared) { hold(); }
    constexpr OperatorHandle(const OperatorHandle& other) noexcept : shared_(other.shared_) {
        if (shared_ != nullptr) hold();
    }
    constexpr OperatorHandle(OperatorHandle&& other) noexcept : shared_(std::exchange(other.shared_, nullptr)) {}
    constexpr OperatorHandle& operator=(OperatorHandle other) noexcept {
        std::swap(shared_, other.shared_);
        return *this;
    }
    constexpr ~OperatorHandle() {
        if (shared_ != nullptr) release();
    }
    constexpr const UserOperator* get() const noexcept { return shared_; }
    friend constexpr bool operator==(const OperatorHandle&, const OperatorHandle&) = default;

 private:
    void hold() const noexcept;
    void release() const noexcept;
    const UserOperator* shared_ = nullptr;
};

template <class T>
struct FirstParameter {};
template <class R, class First, class... Rest>
struct FirstParameter<R (*)(First, Rest...)> : std::type_identity<First> {};
template <class R, class First, class... Rest>
struct FirstParameter<R (*)(First, Rest...) noexcept> : std::type_identity<First> {};
template <class F, class R, class First, class... Rest>
struct FirstParameter<R (F::*)(First, Rest...)> : std::type_identity<First> {};
template <class F, class R, class First, class... Rest>
struct FirstParameter<R (F::*)(First, Rest...) const> : std::type_identity<First> {};
template <class F, class R, class First, class... Rest>
struct FirstParameter<R (F::*)(First, Rest...) const noexcept> : std::type_identity<First> {};

template <class F>
struct Signature : FirstParameter<F> {};
template <class F>
requires requires {
    &F::operator();
}
struct Signature<F> : FirstParameter<decltype(&F::operator())> {};

/// A function with one signature, whose first parameter shows the type of the elements.
template <class F>
concept HasElement = requires {
    typename Signature<F>::type;
};
template <HasElement F>
using ElementOfOperator = std::remove_cv_t<std::remove_pointer_t<std::remove_cvref_t<typename Signature<F>::type>>>;

template <class T, class F>
inline constexpr bool combines_blocks = std::is_invocable_v<const F&, const T*, T*, std::size_t>;
template <class T, class F>
concept Combines = combines_blocks<T, F> || std::is_invocable_r_v<T, const F&, const T&, const T&>;

template <class T, class F>
void run_operator(const void* in, void* inout, std::size_t count, void* context) {
    const F& f = *static_cast<const F*>(context);
    const T* const left = static_cast<const T*>(in);
    T* const right = static_cast<T*>(inout);
    if constexpr (combines_blocks<T, F>) {
        f(left, right, count);
    } else {
        for (std::size_t i = 0; i < count; ++i) right[i] = f(left[i], right[i]);
    }
}

template <class T, class F>
OperatorParts parts_of(F f) {
    OperatorParts parts{.function = &run_operator<T, F>,
                        .context = new F(std::move(f)),
                        .destroy = [](void* context) { delete static_cast<F*>(context); },
                        .element_bytes = sizeof(T),
                        .alignment = alignof(T)};
    if constexpr (Element<T>) parts.dtype = dtype_of<T>;
    return parts;
}

}  // namespace detail
}  // namespace tutti
