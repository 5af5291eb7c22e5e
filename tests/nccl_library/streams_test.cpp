#include "ranks.hpp"
