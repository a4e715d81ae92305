// Properties checked over random cases that shrink (RapidCheck). Each runs CKPTD_PROPERTY_CASES
// cases (default 1,000), or the given part of them.
#ifndef CKPTD_TESTS_PROPERTY_H_
#define CKPTD_TESTS_PROPERTY_H_

#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>

namespace ckptd {

inline int PropertyCases() {
  const char* const cases = std::getenv("CKPTD_PROPERTY_CASES");
  return cases == nullptr ? 1000 : std::atoi(cases);
}

// True if `property` (which makes its case with rc::gen and checks with RC_ASSERT)
// holds in all cases. In RC_ASSERT, put && and || in parentheses of their own: it
// captures its expression, and they would not short-circuit. A failure prints the smallest case and
// how to run it again.
// `divisor`: one whose cases are slow runs so many times fewer.
template <typename Property>
bool Holds(const std::string& name, Property&& property, int divisor = 1) {
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = std::max(1, PropertyCases() / divisor);
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

#endif  // CKPTD_TESTS_PROPERTY_H_
