// Properties checked over random cases that shrink (RapidCheck). All properties of
// this binary together run CKPTD_PROPERTY_CASES cases (default 10,000).
#ifndef CKPTD_TESTS_STORAGE_PROPERTY_H_
#define CKPTD_TESTS_STORAGE_PROPERTY_H_

#include <rapidcheck.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>

namespace ckptd {

inline constexpr int kProperties = 8;  // in this binary: each gets an equal share

inline int CasesPerProperty() {
  const char* const total = std::getenv("CKPTD_PROPERTY_CASES");
  const int cases = total == nullptr ? 10'000 : std::atoi(total);
  return (cases + kProperties - 1) / kProperties;
}

// True if `property` (which makes its case with rc::gen and checks with RC_ASSERT)
// holds in all cases. In RC_ASSERT, put && and || in parentheses of their own: it
// captures its expression, and they would not short-circuit. A failure prints the smallest case and
// how to run it again.
template <typename Property>
bool Holds(const std::string& name, Property&& property) {
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = CasesPerProperty();
  rc::detail::TestMetadata metadata;
  metadata.id = name;
  metadata.description = name;
  const auto result = rc::detail::checkTestable(std::forward<Property>(property), metadata, params);
  std::cerr << "property \"" << name << "\", seed " << params.seed << ": ";
  rc::detail::printResultMessage(result, std::cerr);
  std::cerr << "\n";
  return result.template is<rc::detail::SuccessResult>();
}

}  // namespace ckptd

#endif  // CKPTD_TESTS_STORAGE_PROPERTY_H_
