#include "api/environment.hpp"

#include "algorithm/select.hpp"
#include "core/env.hpp"
#include "core/settings.hpp"
#include "security/handshake.hpp"
#include "transport/tcp/congestion.hpp"
#include "transport/tcp/lane_growth.hpp"
#include "tune/tune.hpp"

namespace tutti::api {

void check_environment() {
    settings::transport();
    settings::determinism();
    settings::wait();
    settings::progress_nice();
    settings::spread();
    settings::huge_pages();
    settings::timeout();
    settings::lifeline_timeout();
    settings::tcp_checksum();
    algorithm::parse_override(env::get("TUTTI_ALGORITHM").value_or(""), Collective::barrier);
    tune::setting_from_environment(tune::Files::ignored);
    transport::Congestion::from_environment();
    transport::Lanes::from_environment();
    security::handshake_timeout();
    env::get_bool("TUTTI_INSECURE", false);
    env::get_bool("TUTTI_STORE_LOCAL", true);
}

}  // namespace tutti::api
