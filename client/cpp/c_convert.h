// From the C ABI's arrays to the client's types.
#ifndef CKPTD_CLIENT_CPP_C_CONVERT_H_
#define CKPTD_CLIENT_CPP_C_CONVERT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/ckptd_client.h"
#include "client/cpp/client.h"

namespace ckptd {

std::string ToString(ckptd_string text);
std::string NameAt(const ckptd_names& names, uint64_t index);
// `seconds` as a duration; not a number becomes zero, which is refused later.
absl::Duration ToDuration(double seconds);

ClientOptions ToOptions(const ckptd_client_options& options);
v1::Layout ToLayout(const ckptd_layout_spec& spec);
SaveRequest ToSaveRequest(const ckptd_save_request& request,
                          std::shared_ptr<const ClientLayout> layout);
LoadRequest ToLoadRequest(const ckptd_load_request& request,
                          std::shared_ptr<const ClientLayout> layout);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CPP_C_CONVERT_H_
