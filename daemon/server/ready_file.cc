#include "daemon/server/ready_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "daemon/runtime/json_writer.h"
#include "proto/rpc/unique_fd.h"

namespace ckptd {

std::string ReadyReportJson(const ReadyReport& report) {
  JsonWriter json;
  const auto text = [&json](std::string_view key, const std::string& value) {
    if (!value.empty()) json.Key(key).Text(value);
  };
  json.BeginObject().Key("pid").Signed(report.process_id);
  text("role", report.role);
  text("version", report.version);
  text("node", report.node);
  text("grpc_socket", report.grpc_socket);
  text("handle_socket", report.handle_socket);
  text("coordinator_address", report.coordinator_address);
  if (report.metrics_port != 0) json.Key("metrics_port").Signed(report.metrics_port);
  return json.EndObject().text() + "\n";
}

absl::Status WriteReadyFile(const std::string& path, const ReadyReport& report) {
  const std::string content = ReadyReportJson(report);
  const std::string temporary = absl::StrCat(path, ".tmp-", ::getpid());
  UniqueFd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.valid() ||
      ::write(file.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size()) ||
      ::rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("writing ready file ", path));
  }
  return absl::OkStatus();
}

}  // namespace ckptd
