#include "pieces.hpp"

#include "piece_program.hpp"
#include "piece_steps.hpp"

#include <ATen/ATen.h>

#include <tutti/collectives.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

namespace tutti::torch {

/// Where the tensors of a capture lie. Either memory, side by side, where replays work on copies; or addresses alone,
/// which no other tensor has, and which every replay replaces.
class Places {
 public:
    enum class Of { copies, addresses };
    Places(Of of, std::size_t bytes) : of_(of), bytes_(std::max<std::size_t>(bytes, 1)) {
        const int access = of == Of::copies ? PROT_READ | PROT_WRITE : PROT_NONE;
        at_ = ::mmap(nullptr, bytes_, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at_ == MAP_FAILED)
            throw std::system_error(errno, std::generic_category(), "mmap of a compiled graph's places");
    }
    ~Places() { ::munmap(at_, bytes_); }
    Places(const Places&) = delete;
    Places& operator=(const Places&) = delete;

    Of of() const noexcept { return of_; }
    static std::size_t room_for(std::size_t bytes) { return (bytes / gap + 2) * gap; }
    /// The next tensor's. Copies that adjoin travel together without another copy.
    std::byte* take(std::size_t bytes, std::size_t element) {
        used_ = of_ == Of::copies ? (used_ + element - 1) / element * element : used_;
        std::byte* const at = static_cast<std::byte*>(at_) + used_;
        used_ += of_ == Of::copies ? bytes : room_for(bytes);
        return at;
    }

 private:
    static constexpr std::size_t gap = 64;
    Of of_;
    std::size_t bytes_;
    void* at_ = nullptr;
    std::size_t used_ = 0;
};

/// A program with the sizes of its tensors: its graph, and Executables for the places where the tensors have been.
class Pieces::Piece {
 public:
    Piece(const ProcessGroup& group, std::string text, const Tensors& written, const Tensors& read)
        : text_(std::move(text)),
          sizes_(sizes_of(written, read)),
          group_(group),
          program_(read_program(text_)),
          places_(worth_copying(sizes_) ? Places::Of::copies : Places::Of::addresses, room()) {
        for (const auto* list : {&written, &read}) {
            const bool writes = list == &written;
            std::deque<Local>& locals = writes ? written_ : read_;
            for (const at::Tensor& t : *list) {
                const TensorView here = view_of(t, "graph", writes ? "written" : "read");
                locals.push_back(
                    {TensorView(places_.take(here.byte_count(), t.element_size()), here.shape(), here.dtype()),
                     t.scalar_type()});
            }
        }
        const graph::Graph captured = graph::capture([&] {
            for (const PieceStep& step : program_.steps) capture(step);
            for (const Local& own : own_) {
                if (own.view.element_count() > 0) graph::temporary(own.view);
            }
        });
        captured_ = captured.to_text();
        optimised_ = graph::optimise(captured, {.alike = true,
                                                .algebra = program_.algebra,
                                                .split = false,
                                                .overlap = false,
                                                .bucket_bytes = program_.bucket_bytes});
        if (places_.of() == Places::Of::copies) executables_.push_back({graph::Executable(optimised_.graph), {}, 0});
    }

    /// Whether the tensors have its sizes.
    bool is(const Tensors& written, const Tensors& read) const { return are_sizes(sizes_, written, read); }

    void replay(const Tensors& written, const Tensors& read) {
        ++replays_;
        if (places_.of() == Places::Of::addresses) return executable_for(written, read).replay();
        copy_in(written, written_);
        copy_in(read, read_);
        executables_.front().executable.replay();
        for (std::size_t i = 0; i < written.size(); ++i)
            copy(written[i].mutable_data_ptr(), written_[i].view.data(), written_[i]);
    }

    Told tell() const { return {text_, captured_, optimised_.to_text(), optimised_.graph.to_text(), replays_}; }

 private:
    struct Size {
        std::int64_t count;
        at::ScalarType type;
        friend bool operator==(const Size&, const Size&) = default;
    };
    struct Local {
        TensorView view;
        at::ScalarType type;
    };
    /// Bound to these addresses; of copies, to none.
    struct Bound {
        graph::Executable executable;
        std::vector<const void*> at;
        std::uint64_t used;
    };

    static std::vector<Size> sizes_of(const Tensors& written, const Tensors& read) {
        std::vector<Size> sizes;
        for (const auto* list : {&written, &read}) {
            for (const at::Tensor& t : *list) sizes.push_back({t.numel(), t.scalar_type()});
        }
        return sizes;
    }
    static bool are_sizes(const std::vector<Size>& sizes, const Tensors& written, const Tensors& read) {
        if (sizes.size() != written.size() + read.size()) return false;
        auto size = sizes.begin();
        for (const auto* list : {&written, &read}) {
            for (const at::Tensor& t : *list) {
                if (*size++ != Size{t.numel(), t.scalar_type()}) return false;
            }
        }
        return true;
    }
    static std::size_t bytes_of(const Size& size) {
        return static_cast<std::size_t>(size.count) * c10::elementSize(size.type);
    }
    /// Allocators rarely give small tensors the same places in every call, and to move an Executable takes some
    /// microseconds a tensor: as much as copying so many bytes there and back.
    static bool worth_copying(const std::vector<Size>& sizes) {
        static constexpr std::size_t bytes_each = 8 << 10;
        std::size_t bytes = 0;
        for (const Size& size : sizes) bytes += bytes_of(size);
        return bytes <= bytes_each * sizes.size();
    }
    std::size_t room() const {
        std::size_t bytes = 0;
        for (const Size& size : sizes_) bytes += Places::room_for(bytes_of(size));
        return bytes;
    }

    // ---- Capture

    const Local& known(const PieceTensor& t) const {
        const std::deque<Local>& list = t.of == PieceTensor::Of::written ? written_
                                        : t.of == PieceTensor::Of::read  ? read_
                                                                         : own_;
        if (t.number >= list.size())
            throw InvalidArgument("tutti_graph::replay_: the program \"" + text_ + "\" names tensor " +
                                  std::to_string(t.number) + " of " + std::to_string(list.size()));
        return list[t.number];
    }
    /// What a step writes; the piece's own tensors are made at their first use.
    const Local& result(const PieceTensor& t, std::int64_t count, at::ScalarType type) {
        if (t.of == PieceTensor::Of::own && t.number == own_.size()) {
            memory_.push_back(at::empty({count}, at::TensorOptions(type)));
            own_.push_back({view_of(memory_.back(), "graph", "own"), type});
        }
        return known(t);
    }
    const Local& source(const PieceStep& step, std::size_t i = 0) const {
        if (i >= step.from.size())
            throw InvalidArgument("tutti_graph::replay_: step " + step.name + " reads " +
                                  std::to_string(step.from.size()) + " tensors: expected more");
        return known(step.from[i]);
    }

    void capture(const PieceStep& step) {
        const ProcessGroup& group = group_;
        if (step.name == "all_reduce") {
            const Local& x = known(step.to);
            return all_reduce(x.view, {.op = checked(step, x), .group = group});
        }
        if (step.name == "broadcast") return broadcast(known(step.to).view, {.group = group, .group_src = step.root});
        const Local& from = source(step);
        const std::int64_t count = from.view.element_count(), n = group.size();
        if (step.name == "all_gather")
            return all_gather_into_tensor(result(step.to, count * n, from.type).view, from.view, {.group = group});
        if (step.name == "reduce_scatter") {
            const Local& to = result(step.to, count / n, from.type);
            return reduce_scatter_tensor(to.view, from.view, {.op = checked(step, to), .group = group});
        }
        const Local& to = result(step.to, count, from.type);
        if (step.name == "all_to_all") return all_to_all_single(to.view, from.view, {.group = group});
        compute(step, to);
    }
    static ReduceOp checked(const PieceStep& step, const Local& x) {
        if (!is_supported(step.op.kind(), x.view.dtype()))
            check_supported(step.op, at::empty({0}, x.type), step.name.c_str());
        return step.op;
    }

    void compute(const PieceStep& step, const Local& to) const {
        ConstTensorList reads;
        for (std::size_t i = 0; i < reads_of_local_step(step.name, step.scalar.has_value()); ++i)
            reads.push_back(source(step, i).view);
        graph::compute(reads, {to.view}, local_step(step.name, to.type, step.scalar),
                       {.name = step.name, .elementwise = to.view.element_count() > 0});
    }

    // ---- Replay

    static void copy_in(const Tensors& from, const std::deque<Local>& to) {
        for (std::size_t i = 0; i < from.size(); ++i) copy(to[i].view.data(), from[i].const_data_ptr(), to[i]);
    }
    static void copy(void* to, const void* from, const Local& of) {
        if (const std::size_t bytes = of.view.byte_count(); bytes > 0) std::memcpy(to, from, bytes);
    }

    graph::Executable& executable_for(const Tensors& written, const Tensors& read) {
        const auto at = [&](std::size_t i) {
            return i < written.size() ? written[i].const_data_ptr() : read[i - written.size()].const_data_ptr();
        };
        const std::size_t count = written.size() + read.size();
        ++turn_;
        for (Bound& bound : executables_) {
            std::size_t i = 0;
            while (i < count && bound.at[i] == at(i)) ++i;
            if (i < count) continue;
            bound.used = turn_;
            return bound.executable;
        }
        if (executables_.size() < most_bound)
            executables_.push_back({graph::Executable(optimised_.graph), std::vector<const void*>(count), 0});
        Bound& bound = *std::ranges::min_element(executables_, {}, &Bound::used);
        std::vector<graph::Binding> bindings;
        for (std::size_t i = 0; i < count; ++i) {
            const Local& known = i < written.size() ? written_[i] : read_[i - written.size()];
            bindings.push_back(
                {known.view, TensorView(const_cast<void*>(at(i)), known.view.shape(), known.view.dtype())});
        }
        std::ranges::fill(bound.at, nullptr);
        bound.executable.bind(bindings);
        for (std::size_t i = 0; i < count; ++i) bound.at[i] = at(i);
        bound.used = turn_;
        return bound.executable;
    }

    static constexpr std::size_t most_bound = 4;  // allocators give few places in turn

    std::string text_;
    std::vector<Size> sizes_;
    ProcessGroup group_;
    PieceProgram program_;
    Places places_;
    std::deque<Local> written_, read_, own_;  // which references stay valid in
    Tensors memory_;                          ///< of own_, where they do not share an arena
    std::string captured_;
    graph::Optimised optimised_;
    std::vector<Bound> executables_;
    std::uint64_t turn_ = 0, replays_ = 0;
};

Pieces::Pieces() = default;
Pieces::~Pieces() = default;

Pieces::Piece& Pieces::piece_of(const ProcessGroup& group, const std::string& program, const Tensors& written,
                                const Tensors& read) {
    static constexpr std::size_t most_sizes = 16;  // a program whose sizes always change would fill the memory
    std::deque<Numbered>& pieces = pieces_[program];
    for (const auto& [number, piece] : pieces) {
        if (piece->is(written, read)) return *piece;
    }
    auto made = std::make_unique<Piece>(group, program, written, read);
    if (pieces.size() == most_sizes) pieces.pop_front();
    return *pieces.emplace_back(next_number_++, std::move(made)).second;
}

void Pieces::replay(const ProcessGroup& group, const std::string& program, const Tensors& written,
                    const Tensors& read) {
    const std::lock_guard lock(mutex_);
    piece_of(group, program, written, read).replay(written, read);
}

std::vector<Pieces::Told> Pieces::tell() const {
    const std::lock_guard lock(mutex_);
    std::map<std::size_t, Told> told;
    for (const auto& [program, pieces] : pieces_) {
        for (const auto& [number, piece] : pieces) told.emplace(number, piece->tell());
    }
    std::vector<Told> in_order;
    for (auto& [number, one] : told) in_order.push_back(std::move(one));
    return in_order;
}

}  // namespace tutti::torch
