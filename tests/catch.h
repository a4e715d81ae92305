// Catch2, version 2 or 3: the only place that knows which.
#ifndef CKPTD_TESTS_CATCH_H_
#define CKPTD_TESTS_CATCH_H_

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#endif  // CKPTD_TESTS_CATCH_H_
