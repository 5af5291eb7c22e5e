// One rank of rank_table_test.sh: exchanges a value with all ranks of a rank table. Usage: rank_of_table TABLE RANK
// DOMAIN
#include <tutti/atb.hpp>

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int count, char** words) {
    if (count != 4) return 2;
    const int rank = std::atoi(words[2]);
    try {
        tutti::atb::AllToAllVV2 operation({.rank = rank, .rankTableFile = words[1], .commDomain = words[3]});
        const int size = operation.group().size();
        const std::vector<int> x(static_cast<std::size_t>(size), 10 * rank);
        const tutti::Tensor all = operation.execute(x);
        for (int other = 0; other < size; ++other) {
            if (all.data<int>()[other] != 10 * other) {
                std::printf("WRONG: %d from rank %d\n", all.data<int>()[other], other);
                return 3;
            }
        }
        std::printf("rank %d of %d\n", rank, size);
        return 0;
    } catch (const tutti::DistError& error) {
        std::printf("%s\n", error.what());
        return 1;
    }
}
