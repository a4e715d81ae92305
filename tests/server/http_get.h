// The smallest HTTP client that can scrape /metrics of this machine.
#ifndef CKPTD_TESTS_SERVER_HTTP_GET_H_
#define CKPTD_TESTS_SERVER_HTTP_GET_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "proto/rpc/unique_fd.h"

namespace ckptd {

// Head and body; empty when nobody answers.
inline std::string HttpGet(int port, const std::string& path) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return "";
  }
  const std::string request =
      "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  if (::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return "";
  std::string answer;
  char part[4096];
  for (ssize_t size = 0; (size = ::recv(socket.get(), part, sizeof(part), 0)) > 0;) {
    answer.append(part, static_cast<size_t>(size));
  }
  return answer;
}

}  // namespace ckptd

#endif  // CKPTD_TESTS_SERVER_HTTP_GET_H_
