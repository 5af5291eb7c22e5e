// Stores: how a kernel writes its results.
#pragma once

namespace tutti::kernels {

/// Whether results are written around the cache (large results that nobody reads soon) or through it.
enum class Stores { cached, streaming };

}  // namespace tutti::kernels
