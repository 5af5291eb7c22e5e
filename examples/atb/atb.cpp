// AllToAllVV2: ranks that find each other by its parameters alone, as processes and as threads, and a matrix whose rows
// are shared by the ranks that becomes one whose columns are.
//
//   build/examples/atb
#include <tutti/tutti.hpp>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using tutti::atb::AllToAllVV2;
using tutti::atb::OperationTorch;

void expect(bool good, const std::string& what) {
    if (!good) throw std::runtime_error(what);
}

// The example of ATB's document. No launcher, no store: the ranks are processes that one program has started.
void documents_example(int rank) {
    const std::vector<std::vector<tutti::Float16>> x{
        {tutti::Float16(0), tutti::Float16(1), tutti::Float16(2), tutti::Float16(3), tutti::Float16(4),
         tutti::Float16(5), tutti::Float16(6), tutti::Float16(7)},
        {tutti::Float16(0), tutti::Float16(1), tutti::Float16(2), tutti::Float16(3), tutti::Float16(4),
         tutti::Float16(6)}};
    const std::vector<std::string> places{
        R"({"sendCounts": [2, 4], "sdispls": [0, 2], "recvCounts": [2, 2], "rdispls": [0, 2]})",
        R"({"sendCounts": [2, 1], "sdispls": [0, 2], "recvCounts": [4, 1], "rdispls": [0, 4]})"};
    const std::vector<std::vector<float>> golden{{0, 1, 0, 1}, {2, 3, 4, 5, 2}};

    const auto me = static_cast<std::size_t>(rank);
    OperationTorch operation("AllToAllVV2Operation");
    const std::string param = R"({"rank": RANK, "rankSize": 2, "rankRoot": 0, "backend": "hccl"})";
    operation.set_param(std::string(param).replace(param.find("RANK"), 4, std::to_string(rank)));
    operation.set_varaintpack_param(places[me]);
    const tutti::Tensor output = operation.execute({x[me]})[0];
    std::string shown;
    for (std::size_t i = 0; i < golden[me].size(); ++i) {
        const float value(output.data<tutti::Float16>()[i]);
        shown += ' ' + std::to_string(static_cast<int>(value));
        expect(value == golden[me][i], "the output is not the document's");
    }
    std::printf("rank %d of 2: float16%s:%s\n", rank, output.shape().to_string().c_str(), shown.c_str());
}

// From data-parallel to model-parallel: three ranks have two rows each of a 6 x 9 matrix, then three columns each.
void transpose(int rank) {
    constexpr int rows = 2, columns = 9, share = columns / 3;
    std::vector<int> mine;  // column by column
    for (int c = 0; c < columns; ++c)
        for (int r = 0; r < rows; ++r) mine.push_back(100 * (rank * rows + r) + c);
    AllToAllVV2 operation({.rank = rank, .rankSize = 3, .commMode = tutti::atb::COMM_MULTI_THREAD});
    const tutti::Tensor theirs = operation.execute(mine);  // equal parts, one after the other
    for (int from = 0, i = 0; from < 3; ++from)
        for (int c = 0; c < share; ++c)
            for (int r = 0; r < rows; ++r, ++i)
                expect(theirs.data<int>()[i] == 100 * (from * rows + r) + rank * share + c, "the matrix is another");
}

void a_mistake_is_named() {
    AllToAllVV2 operation({.rankSize = 1});
    try {
        const std::vector<int> x(4);
        (void)operation.execute(x, {.sendCounts = {5}});
        expect(false, "5 of 4 elements were sent");
    } catch (const tutti::atb::Error& error) {
        std::printf("%s: %s\n", to_string(error.code()), error.what());
        expect(error.code() == tutti::atb::ERROR_INVALID_PARAM, "the code is another");
    }
}

}  // namespace

int main() {
    tutti::spawn(documents_example, 2);
    tutti::spawn(transpose, 3, {.method = tutti::SpawnMethod::threads});
    a_mistake_is_named();
}
