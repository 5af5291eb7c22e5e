// Pages: this process's operations, and the waits of the ranks of this host, over HTTP (http.hpp).
//
//   /status, /status.json   every rank of this host: its operation, since when, and the ranks that it waits for
//   /status.html            the same for a browser (html.hpp)
//   /stack, /stacks         where the threads of this process, or of all ranks of this host, are now (stacks.hpp)
//   /metrics                this process's counters, as Prometheus reads them
//   /trace                  this process's last records; the other ranks fetch them for their pages
//
// The pages of rank r of the world are at TUTTI_STATUS_PORT + r, where the other ranks find them. No page waits for a
// lock that a call of the program holds, so a rank that hangs in a collective answers.
//
// Threads: see HttpServer.
#pragma once

#include "record/dump.hpp"
#include "record/http.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace tutti::record {

/// The sources of this process's data on the pages (dump_writer.hpp).
struct OwnRecords {
    std::vector<Dump> (*dumps)(const std::string& reason, std::size_t count);
    std::string (*metrics)();
};

/// Serves the pages if TUTTI_STATUS_PORT is set and the job has a secret; otherwise, or on failure, returns null. Logs
/// why a wanted server is missing. `rank`: of this process, in the world.
std::unique_ptr<HttpServer> serve_pages(int rank, OwnRecords own);

}  // namespace tutti::record
