#include "daemon/server/address.h"

#include <arpa/inet.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/runtime/absl_view.h"
#include "proto/rpc/wire.h"

namespace ckptd {
namespace {

absl::Status NoAddress(std::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", Absl(text), "\" is no address; write it as unix:/path, HOST:PORT or [IPV6]:PORT"));
}

}  // namespace

bool Address::is_loopback() const {
  if (is_unix() || host == "localhost") return true;
  in_addr v4;
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return ::inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

std::string Address::ToString() const {
  if (is_unix()) return absl::StrCat("unix:", unix_path);
  const bool is_v6 = absl::StrContains(host, ":");
  return is_v6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

absl::StatusOr<Address> ParseAddress(std::string_view text) {
  if (text.starts_with("unix:")) {
    Address address{.unix_path = std::string(text.substr(5))};
    if (absl::Status status = CheckSocketPath(address.unix_path); !status.ok()) return status;
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return NoAddress(text);
  std::string_view host = text.substr(0, colon);
  if (host.starts_with("[") && host.ends_with("]")) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return NoAddress(text);  // an IPv6 address without brackets: where does it end?
  }
  uint32_t port = 0;
  if (host.empty() || host.find('/') != std::string_view::npos ||
      !absl::SimpleAtoi(Absl(text.substr(colon + 1)), &port) || port > 65535) {
    return NoAddress(text);
  }
  return Address{.host = std::string(host), .port = static_cast<uint16_t>(port)};
}

absl::Status CheckSocketPath(std::string_view path) {
  if (!path.starts_with("/")) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket path \"", Absl(path), "\" is not absolute"));
  }
  if (path.size() > kMaxUnixSocketPathBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "socket path ", Absl(path), " has ", path.size(), " bytes; the system's limit is ",
        kMaxUnixSocketPathBytes, "; choose a shorter --socket-dir"));
  }
  return absl::OkStatus();
}

}  // namespace ckptd
