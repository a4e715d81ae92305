#include "daemon/node/sessions.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ckptd {

std::string RandomBytes(int bytes) {
  std::string random(bytes, '\0');
  size_t filled = 0;
  while (filled < random.size()) {
    const ssize_t got = getrandom(random.data() + filled, random.size() - filled, 0);
    if (got > 0) filled += got;
    if (got < 0 && errno != EINTR) abort();  // no kernel of ours is without it
  }
  return random;
}

absl::StatusOr<SessionPtr> Sessions::Open(uint32_t process_id, uint32_t user_id,
                                          uint32_t group_id) {
  auto session = std::make_shared<Session>();
  session->token = RandomBytes(kSessionTokenBytes);
  session->process_id = process_id;
  session->user_id = user_id;
  session->group_id = group_id;
  absl::MutexLock lock(&mutex_);
  if (by_token_.size() >= limit_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this node has ", limit_, " sessions, its limit; end some processes"));
  }
  size_t& of_user = per_user_[user_id];
  if (of_user >= limit_per_user_) {
    return absl::ResourceExhaustedError(absl::StrCat("user ", user_id, " has ", limit_per_user_,
                                                     " sessions on this node, the limit"));
  }
  ++of_user;
  session->id = next_id_++;
  by_token_.emplace(session->token, session);
  return session;
}

void Sessions::End(const Session& session) {
  absl::MutexLock lock(&mutex_);
  if (by_token_.erase(session.token) == 0) return;
  auto of_user = per_user_.find(session.user_id);
  if (--of_user->second == 0) per_user_.erase(of_user);
}

absl::StatusOr<SessionPtr> Sessions::Find(absl::string_view token) const {
  absl::MutexLock lock(&mutex_);
  auto it = by_token_.find(token);
  if (it == by_token_.end()) {
    return absl::UnauthenticatedError(
        token.empty()
            ? "the call carries no session token: connect to node.handles first"
            : "this node daemon knows no such session (it was restarted, or the connection to "
              "node.handles was closed): connect again and join the world again");
  }
  return it->second;
}

std::vector<SessionPtr> Sessions::All() const {
  std::vector<SessionPtr> all;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [token, session] : by_token_) all.push_back(session);
  }
  std::sort(all.begin(), all.end(),
            [](const SessionPtr& a, const SessionPtr& b) { return a->id < b->id; });
  return all;
}

}  // namespace ckptd
